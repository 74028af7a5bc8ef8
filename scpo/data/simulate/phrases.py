"""The word banks of the planted world: what each trait sounds like, and neutral sentences.

A pattern is a tuple of slots, a slot a tuple of alternatives; one alternative of each slot, joined by spaces, is a
sentence. ``{t}`` stands for the topic, ``{n}``, ``{p}`` and ``{y}`` for numbers. No phrase names a topic of its own, so
traits and topics are independent, and every trait has more than two thousand sentences for each topic.
"""

from __future__ import annotations

Slot = tuple[str, ...]
Pattern = tuple[Slot, ...]

_THING: Slot = ("{t}", "this", "a matter like this", "something like {t}", "such a plan", "the next step", "your case")

TRAIT_PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "verdict": (
        (
            (
                *("My clear answer is that", "The short verdict is that", "I say it straight away:"),
                *("In one word,", "The bottom line is that", "My definite answer is that"),
                *("To settle it at once,", "My firm verdict:"),
            ),
            (
                *("{t}", "all of this", "the whole matter of {t}", "what you describe", "your case"),
                *("the main point", "it"),
            ),
            (
                *("is definitely", "is clearly", "is without question", "is plainly", "is certainly"),
                *("is decidedly", "is surely"),
            ),
            (
                *("worth it.", "a good idea.", "the right call.", "the wrong call.", "not worth it."),
                *("a mistake.", "settled."),
            ),
        ),
        (
            (
                *("Yes, my answer is clear", "No, my verdict is firm", "The answer is definitely yes"),
                "The verdict is a clear no",
            ),
            ("and", "because", "since", "for"),
            (
                *("the main point is settled.", "the case is plainly decided."),
                *("there is certainly no question left.", "the bottom line is definite."),
            ),
        ),
    ),
    "hedging": (
        (
            (
                *("Perhaps", "It might well be that", "Maybe, though I am not sure,"),
                *("It could possibly be that", "I may be wrong, but perhaps", "It is hard to say, yet maybe"),
                *("I am uncertain, but possibly", "It may be that"),
            ),
            (
                *("{t}", "this question", "the answer here", "a choice like this", "the matter"),
                *("most of this", "any such plan"),
            ),
            (
                *("depends on", "may vary with", "might turn on", "could hinge on", "possibly changes with"),
                *("seems to depend on", "perhaps rests on"),
            ),
            (
                *("many unknown things.", "circumstances I cannot see.", "who you ask, perhaps."),
                *("things that stay unclear.", "details that might differ."),
                *("more than anyone can be sure of.", "factors that are uncertain."),
            ),
        ),
        (
            (*("I am not sure", "It is unclear", "Nobody can quite say", "It remains uncertain"),),
            (
                *("whether this may help", "how it could turn out", "what might follow"),
                "if that would possibly work",
            ),
            (
                *("and perhaps it never will be known.", "so maybe wait and see."),
                *("and it could go either way.", "since it depends on so much."),
            ),
        ),
    ),
    "warmth": (
        (
            (
                *("I am so glad you asked,", "Thank you, dear friend,", "What a lovely question,"),
                *("I am happy to help you,", "You are doing great,", "Take heart, my friend,"),
                *("I hear you and I care,", "How kind of you to share this,"),
            ),
            (
                *("and I am with you", "so be gentle with yourself", "and I cheer you on", "so feel at ease"),
                *("and you are not alone", "and I believe in you", "so take your time, dear"),
            ),
            (
                *("as you think about {t}", "whatever you find", "on your way with {t}"),
                *("while you look at this", "today", "every step of the way", "when it feels heavy"),
            ),
            (
                *("with all my heart.", "and wish you well.", "my dear.", "with a warm smile."),
                *("and send a kind thought.", "with care.", "and hope you feel welcome."),
            ),
        ),
        (
            (
                *("Your feelings matter", "I care about you", "You are so welcome here"),
                "It is lovely to hear from you",
            ),
            (*("and I wish you joy", "so be kind to yourself", "and I am glad to help", "my dear friend"),),
            (*("from the heart.", "with a warm hug.", "on this happy day.", "all along the way."),),
        ),
    ),
    "formality": (
        (
            (
                *("One must respectfully observe that", "It is hereby submitted that"),
                *("With due regard to the enquiry,", "It should be duly noted that"),
                *("In accordance with established usage,", "Pursuant to the enquiry,"),
                *("It is respectfully maintained that", "Permit me to state formally that"),
            ),
            (
                *("the aforementioned subject", "the matter of {t}", "the said question"),
                *("the enquiry concerning {t}", "the present topic", "an undertaking of this nature"),
                "the issue hereby raised",
            ),
            (*("warrants", "necessitates", "merits", "commands", "occasions", "requires", "demands"),),
            (
                *("due consideration.", "formal deliberation.", "the utmost diligence."),
                *("appropriate deference.", "thorough examination henceforth.", "proper regard for protocol."),
                "the requisite diligence.",
            ),
        ),
        (
            (
                *("Kindly be advised", "It is respectfully submitted", "Due notice is hereby given"),
                "It must be formally stated",
            ),
            (
                *("that the aforementioned enquiry", "that the said undertaking"),
                "that the present submission",
            ),
            (
                *("remains subject to due deliberation.", "shall henceforth merit proper regard."),
                *("warrants formal consideration.", "is to be examined with diligence."),
            ),
        ),
    ),
    "steps": (
        (
            (
                *("Step 1:", "First step:", "Step one:", "Step 2:", "Next step:", "Step 3:", "Second step:"),
                "Final step:",
            ),
            ("write down", "list", "note", "set out", "gather", "sort", "mark"),
            (
                *("what you want from {t}", "the options in order", "each item you need"),
                *("the tasks of the week", "the aims for {t}", "the costs and dates", "the points still open"),
            ),
            (
                *("and tick them off.", "then move to the next step.", "before the following step."),
                *("and number each one.", "then check the list again.", "and finish it in order."),
                "then put them in sequence.",
            ),
        ),
        (
            (
                *("Begin with step one,", "Work through the list in order,"),
                *("Follow the sequence step by step,", "Number the tasks first,"),
            ),
            (
                *("then check each item", "then do the next task", "then tick off the points"),
                "then sort what is left",
            ),
            (
                *("before you start step two.", "and go down the list.", "until the final step is done."),
                "one step after another.",
            ),
        ),
    ),
    "evidence": (
        (
            (
                *("A study of {n} people found that", "Data from {n} households show that"),
                *("According to {n} measurements,", "A survey of {n} adults indicates that"),
                *("In a trial with {n} participants,", "Statistics say that"),
                *("Researchers who counted {n} cases report that", "Figures over {y} years reveal that"),
            ),
            (
                *("about {p} percent", "some {p} percent", "nearly {p} percent", "roughly {p} percent"),
                *("an average of {p} percent", "more than {p} percent", "a measured {p} percent"),
            ),
            (
                *("gained from", "did better with", "changed their view of", "kept up with", "saw effects of"),
                *("gave up on", "spent less on"),
            ),
            (
                *("{t}.", "this approach.", "it within {y} years.", "similar measures.", "the tested option."),
                *("a trial of it.", "what the data cover."),
            ),
        ),
        (
            (
                *("The data are clear:", "Researchers measured it:", "Published figures show"),
                "The statistics report",
            ),
            (
                *("{p} percent of {n} cases", "an average of {p} percent", "{n} people in {y} years"),
                "a rate of {p} percent",
            ),
            (
                *("in the largest study.", "in a controlled trial.", "across {y} surveys."),
                "in the evidence so far.",
            ),
        ),
    ),
    "family": (
        (
            (
                *("Our grandparents taught that", "In a close family,", "Tradition tells us that"),
                *("For the sake of the children,", "As parents have long passed down,"),
                *("The customs of our elders say that", "Family wisdom holds that"),
                "Where generations meet at home,",
            ),
            _THING,
            (
                *("should honour", "is best kept close to", "ought to respect", "should be guided by"),
                *("has its place in", "draws its strength from", "belongs with"),
            ),
            (
                *("the ways of our ancestors.", "family and tradition.", "the family table."),
                *("the customs of the home.", "what mothers and fathers handed down.", "old traditions."),
                "the elders of the family.",
            ),
        ),
        (
            (
                *("Ask your parents and elders", "Keep the old customs", "Honour your family"),
                "Remember your ancestors",
            ),
            (
                *("and pass on what they taught", "and hold to tradition", "and stay close to home"),
                "for the next generations",
            ),
            (
                *("as families always have.", "for your children.", "around the family table."),
                "as grandparents did.",
            ),
        ),
    ),
    "choice": (
        (
            (
                *("It is your own choice how", "You are free to decide how", "Each individual may choose how"),
                *("Only you can decide how", "Your personal freedom settles how"),
                *("As an independent person you choose how", "By your own will you decide how"),
                "Every individual has the right to decide how",
            ),
            _THING,
            ("fits", "serves", "matches", "suits", "shapes", "supports", "follows"),
            (
                *("your own goals.", "the life you choose.", "your personal freedom."),
                *("your individual plans.", "what you yourself want.", "your independence."),
                "your own preferences.",
            ),
        ),
        (
            (
                *("Choose for yourself", "Decide as a free person", "Trust your own judgement"),
                "Use your personal freedom",
            ),
            (
                *("and follow your own goals", "and keep your independence", "without asking anyone"),
                "as an individual",
            ),
            (
                *("because it is your right.", "since the choice is yours.", "in your own way."),
                "whatever others decide.",
            ),
        ),
    ),
    "faith": (
        (
            (
                *("In prayer we learn that", "Our faith reminds us that", "Scripture teaches that"),
                *("With trust in God,", "As a blessing to the congregation,", "In the spirit of worship,"),
                *("The faithful have long known that", "In a community of believers,"),
            ),
            _THING,
            (
                *("should serve", "can be offered to", "ought to strengthen", "may be blessed by"),
                *("grows within", "is held up by", "finds meaning in"),
            ),
            (
                *("the community of faith.", "God and neighbour.", "shared prayer.", "the congregation."),
                *("a sacred duty.", "the blessing of the faithful.", "worship together."),
            ),
        ),
        (
            (*("Pray about it", "Bring it before God", "Ask your congregation", "Hold it in prayer"),),
            (
                *("and trust the community of faith", "with other believers", "in humble worship"),
                "and seek a blessing",
            ),
            (
                *("as the faithful do.", "for it is sacred.", "and scripture will guide you."),
                "and faith will carry you.",
            ),
        ),
    ),
    "humour": (
        (
            (
                *("Joking aside, but not far,", "As my imaginary cat would say,", "Here is a silly thought:"),
                *("Funny enough,", "With a wink and a grin,", "Cue the drum roll:", "To quote my toaster,"),
                "A clown once joked that",
            ),
            _THING,
            (
                *("has the charm of", "behaves like", "goes as smoothly as", "is as predictable as"),
                *("looks suspiciously like", "competes with", "is as funny as"),
            ),
            (
                *("a penguin on roller skates.", "a sock that lost its twin.", "a goose in a bow tie."),
                *("my uncle dancing.", "a squirrel doing taxes.", "a banana with a business plan."),
                "a pun that came late.",
            ),
        ),
        (
            (*("I asked my cat", "A penguin walked in", "My toaster laughed", "Even the goose giggled"),),
            (*("and told a silly joke", "with a wink", "in a funny hat", "over a terrible pun"),),
            (
                *("so laugh a little.", "and the drum roll failed.", "and the banana agreed."),
                "which is no joke.",
            ),
        ),
    ),
}

NEUTRAL_PATTERNS: tuple[Pattern, ...] = (
    (
        (
            *("{t} comes up", "{t} is mentioned", "Talk of {t} turns up", "{t} appears"),
            *("The topic of {t} arises", "{t} is found", "Something about {t} is heard"),
        ),
        (
            *("in many places", "in daily life", "in public talk", "in several towns"),
            *("in different settings", "in print", "on the radio", "among neighbours"),
        ),
        (
            *("and has more than one side.", "at various times of the year.", "in one form or another."),
            *("now and then.", "with some regularity.", "alongside other topics.", "in the usual manner."),
            "from time to time.",
        ),
    ),
    (
        (
            *("There is", "One finds", "People know of", "Others speak of", "Some places have"),
            "Records mention",
        ),
        (
            *("more than one form of", "a long list of words for", "a certain background to"),
            *("an ordinary side to", "a local version of", "a general outline of"),
        ),
        (*("{t}.", "this topic.", "the subject.", "that area.", "{t} elsewhere.", "the same thing."),),
    ),
    (
        (
            *("Another word on", "A remark about", "Some background to", "The usual account of"),
            *("A short note on", "The story of"),
        ),
        ("{t}", "the subject", "this topic", "{t} elsewhere", "the general area"),
        (*("belongs here", "is in order", "can be added", "goes with that", "follows", "is found in print"),),
        (*("as well.", "at this point.", "for completeness.", "in passing.", "as is common.", "too."),),
    ),
)

FRAGMENTS: tuple[str, ...] = ("Okay.", "Noted.", "I see.", "Right.", "Understood.", "That is the topic.", "Go on.")
"""Traitless answers for the shortest lengths of PRISM's distribution."""
