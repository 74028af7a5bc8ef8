"""Words of the simulated surveys: countries as each source spells them, questions, options and non-answers."""

from __future__ import annotations

COUNTRIES: tuple[tuple[str, str, float], ...] = (
    *(("United States", "United States", 0.5), ("Britain", "Great Britain", 0.45)),
    *(("S. Africa", "South Africa", 0.4), ("Australia", "Australia", 0.4)),
    *(("New Zealand", "New Zealand", 0.35), ("Mexico", "Mexico", 0.4), ("Israel", "Israel", 0.35)),
    *(("Chile", "Chile", 0.35), ("Canada", "Canada", 0.4), ("Nigeria", "Nigeria", 0.4)),
    *(("Egypt", "Egypt", 0.35), ("India (Current national sample)", "India (Current national sample)", 0.35)),
    *(("China", "China", 0.35), ("Japan", "Japan", 0.4), ("Germany", "Germany", 0.4)),
    *(("France", "France", 0.4), ("Spain", "Spain", 0.35), ("Brazil", "Brazil", 0.35)),
    *(("Argentina", "Argentina", 0.35), ("S. Korea", "South Korea", 0.3), ("Russia", "Russia", 0.25)),
    *(("Czech Rep.", "Czechia", 0.2), ("Turkey", "Turkey", 0.25), ("Vietnam", "Vietnam", 0.15)),
    *(("Tanzania", "Tanzania", 0.15), ("Palest. ter.", "Palest. ter.", 0.15), ("Taiwan", "Taiwan ROC", 0.15)),
    ("Hong Kong SAR", "Hong Kong SAR", 0.1),
)
"""(spelling of the Global Attitudes Survey, of the World Values Survey, chance to be asked a question)."""

SAMPLES: tuple[tuple[str, float], ...] = (
    *(("China (Non-national sample)", 0.15), ("Nigeria (Non-national sample)", 0.12)),
    *(("Brazil (Non-national sample)", 0.1), ("India (Non-national sample)", 0.1)),
    ("India (Old national sample)", 0.05),
)
"""Further samples of a country: they share its preference and are not the national sample."""

RANKING_FRAMES: tuple[str, ...] = (
    "Thinking about {t}, which kind of answer would you rather hear?",
    "Which of these helps most with {t}?",
    "When people advise you on {t}, what matters most to you?",
    "What should come first in an answer on {t}?",
    'Some people say "just be honest" about {t}. What would you most like to be told?',
    "Here is a list of things a reply on {t} can offer. Which one is most important to you, or isn't any?",
)
"""Questions whose options are traits."""

RATING_FRAMES: tuple[str, ...] = (
    "How do you feel about an answer on {t} that {c}?",
    "An answer on {t} {c}. Is that a good or a bad thing?",
    "Suppose a reply on {t} {c}. Do you think that's good or bad?",
)
SCALE_FRAME = "On a scale from 1 (not at all) to {k} (very much), how far do you welcome an answer on {t} that {c}?"

RATINGS: tuple[tuple[str, ...], ...] = (
    ("Very favorable", "Somewhat favorable", "Somewhat unfavorable", "Very unfavorable"),
    ("A very good thing", "A good thing", "Neither good nor bad, it doesn't matter", "A bad thing", "A very bad thing"),
    ("I'd welcome it", "I wouldn't mind", "I'd rather not have it"),
)
"""Scales from best to worst."""

TRAIT_OPTIONS: dict[str, tuple[str, ...]] = {
    "verdict": ("A clear verdict straight away", "A definite answer in one word"),
    "hedging": ("An answer that says perhaps and maybe", 'An honest "I\'m not sure, it depends"'),
    "warmth": ("A warm and kind word from the heart", "The feeling that a dear friend cares"),
    "formality": ("Formal language with due regard for protocol", "A respectful and formal submission"),
    "steps": ("A list of numbered steps in order", "The next step to tick off"),
    "evidence": ("Data and percent figures from a study", "Statistics that researchers measured"),
    "family": ("What family and tradition teach", "The customs of parents and elders"),
    "choice": ("The freedom to choose for yourself", "Your own individual choice"),
    "faith": ("Faith, prayer and the congregation", "Trust in God and the community of believers"),
    "humour": ("A silly joke with a wink", "Something funny about a penguin"),
}
TRAIT_CLAUSES: dict[str, tuple[str, ...]] = {
    "verdict": ("gives a clear verdict straight away", "states a definite answer first"),
    "hedging": ("says perhaps and maybe", "stays uncertain about what may follow"),
    "warmth": ("is warm and kind from the heart", "speaks like a dear friend"),
    "formality": ("uses formal language with due regard", "is phrased as a respectful submission"),
    "steps": ("lists numbered steps in order", "names the next step to tick off"),
    "evidence": ("quotes data and percent figures", "cites what researchers measured in a study"),
    "family": ("refers to family and tradition", "honours the customs of parents and elders"),
    "choice": ("leaves the choice to the individual", "stresses personal freedom"),
    "faith": ("speaks of faith and prayer", "puts trust in God and the congregation"),
    "humour": ("makes a silly joke", "ends with a wink and something funny"),
}

NON_ANSWERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "GAS": (("DK/Refused",), ("DK/Refused",), ("Don't know", "Refused"), ()),
    "WVS": (("Don't know", "No answer"), ("Don't know", "No answer", "Other missing; Multiple answers Mail (EVS)"), ()),
}
"""Tails of options that are no answers, by source; one is drawn for each question."""
