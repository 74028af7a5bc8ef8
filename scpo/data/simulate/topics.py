"""Prompts of the planted world: topics times frames, by type of conversation, and follow-up questions."""

from __future__ import annotations

TOPICS: tuple[str, ...] = (
    *("working from home", "learning a language", "city traffic", "sleeping better", "growing vegetables"),
    *("public transport", "home cooking", "saving money", "buying a used car", "keeping a dog"),
    *("reading more books", "long distance travel", "street music", "daily exercise", "the school timetable"),
    *("online shopping", "moving to the country", "recycling at home", "night work", "volunteering"),
    *("learning to swim", "a shorter week", "the price of bread", "cycling to work", "a garden pond"),
    *("watching the news", "repairing clothes", "playing chess", "the minimum wage", "living alone"),
    *("tax on sugar", "free museum entry", "nuclear power", "voting at sixteen", "private schooling"),
    *("early retirement", "animal testing", "screen time for teenagers", "space travel", "a ban on fireworks"),
    *("changing careers", "lending money to friends", "the four day week", "a city marathon"),
    *("sharing a flat", "speaking in public", "wearing a uniform", "tipping in restaurants"),
    *("a national holiday", "the use of robots", "a strict speed limit", "painting a room", "renting a house"),
    *("surveillance in shops", "keeping a diary", "mending a friendship", "a vegetarian diet"),
    *("noise at night", "small talk", "military service"),
)

OPENERS: dict[str, tuple[str, ...]] = {
    "unguided": (
        *("What should I know about {t}?", "Can you help me with {t}?", "Give me some advice on {t}."),
        *("Tell me about {t}.", "I have been thinking about {t}, where do I start?"),
        *("How do people deal with {t}?", "What would you say about {t}?", "I need a hand with {t}."),
    ),
    "values guided": (
        *("How important is {t} in a good life?", "What does {t} say about who we are?"),
        *("Is {t} the right thing for me?", "I feel strongly about {t}, do you?"),
        *("What values lie behind {t}?", "My family keeps arguing over {t}, why?"),
        *("How should a good person look at {t}?", "What would you teach a child about {t}?"),
    ),
    "controversy guided": (
        *("Is {t} a good thing or not?", "Where do you stand on {t}?", "Should the state have a say in {t}?"),
        *("People here fight over {t}, who is right?", "Why is {t} so controversial?"),
        *("Do you agree with {t}?", "I am against {t}, change my mind.", "Has {t} gone too far?"),
    ),
}
"""Frames of a first message for each of PRISM's types of conversation."""

TAILS: tuple[str, ...] = (
    *("", "", "", " Thanks.", " I am curious.", " Please explain.", " It came up at lunch."),
    *(" A friend asked me.", " I read about it today.", " I have wondered for years.", " Just asking."),
    " Be honest.",
)

FOLLOW_UPS: tuple[str, ...] = (
    *("Can you say more about {t}?", "And what about the other side of {t}?", "Why do you think so?"),
    *("Go on.", "What follows from that for {t}?", "How would that work for someone like me?"),
    *("Is there anything else on {t}?", "What would you do about {t} yourself?"),
    *("I am not convinced, try again.", "Could you put it differently?", "What do others say about {t}?"),
    "And if I have little time?",
)
