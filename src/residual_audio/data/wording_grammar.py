"""Thousands of ways to say which of two sounds came first, put together from parts of sentences.

A list of wordings teaches a text tower the list. Here every word that decides (before, after,
earlier, announces, is trailed by …) stands in many places, beside many words that decide nothing,
and every verb in both voices, so that the word and not the sentence around it tells the order. As
in the lists, {0} is the sound that is heard first, and about half of the wordings name {1} first.

Nothing that a model is judged by is said here: `NEVER_SAID` holds the words that give those
wordings away, and a sentence with one of them is not made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from residual_audio.data.draws import Draws

N_FRAMES = 4000
NEVER_SAID = (
    # of what is reported
    *("before that", "preced", "leading up", "in the wake", "give way", "gives way", "giving way"),
    *("gave way", "succe", "open", "close"),
    # of what settings are chosen on
    *("herald", "ahead of that", "heel", "came earlier", "room for", "supersed", "outset"),
    *("kick", "wind up", "winds up", "winding up"),
)
EARLIER = (
    *("first", "at first", "initially", "earlier", "earlier on", "beforehand", "previously"),
    *("to begin with", "to start with", "at the start", "at the beginning", "in the beginning"),
    *("originally", "early on", "in the first half", "firstly", "as the first"),
)
"""Said of the sound that is heard first."""
LATER = (
    *("then", "next", "later", "later on", "afterwards", "afterward", "subsequently"),
    *("finally", "eventually", "in the end", "at the end", "at last", "lastly", "thereafter"),
    *("ultimately", "last", "in the second half", "secondly", "second", "as the last"),
    "after a while",
)
"""Said of the other."""
BEFORE = (
    *("before", "prior to", "ahead of", "earlier than", "in advance of", "previous to"),
    *("sooner than", "in front of", "until", "up to"),
)
"""{0} … {1}"""
AFTER = (
    *("after", "following", "later than", "subsequent to", "behind", "right after", "next after"),
    *("as a sequel to", "following on from", "on top of the end of"),
)
"""{1} … {0}"""
POINTERS = ("it", "this", "that", "these", "those", "them", "which", "the former", "the other")
DEGREES = (
    *("", "", "", "", "just ", "right ", "shortly ", "immediately ", "soon ", "long ", "a little "),
    *("some time ", "not long ", "directly ", "well ", "only ", "a moment "),
)
HEARD = (
    *("is heard", "comes", "sounds", "can be heard", "occurs", "happens", "is audible"),
    *("was heard", "came", "takes place", "appears", "is there", "could be heard"),
    *("is played", "rings out"),
)
STARTS = (
    *("starts", "begins", "sets in", "comes in", "takes over", "enters", "commences", "is heard"),
    *("starts up", "arrives", "started", "began", "joins", "appears", "turns up"),
)
ENDS = (
    *("stops", "ends", "is over", "finishes", "has finished", "dies away", "ceases", "fades out"),
    *("is done", "has stopped", "stopped", "ended", "is gone", "falls silent", "had ended"),
)
WHOLE = ("it", "the recording", "the clip", "this", "the audio", "the scene", "everything", "one")
OPENERS = (
    *("there is ", "we hear ", "you can hear ", "one hears ", "someone recorded ", "i hear "),
    *("the sound of ", "this is ", "it is "),
)
# a verb whose subject is heard first: active, participle, passive (followed by "by")
LEADS = (
    ("introduces", "introducing", "introduced"),
    ("announces", "announcing", "announced"),
    ("prefaces", "prefacing", "prefaced"),
    ("ushers in", "ushering in", "ushered in"),
    ("leads into", "leading into", "led into"),
    ("triggers", "triggering", "triggered"),
    ("causes", "causing", "caused"),
    ("prompts", "prompting", "prompted"),
    ("brings on", "bringing on", "brought on"),
    ("sets off", "setting off", "set off"),
    ("foreshadows", "foreshadowing", "foreshadowed"),
    ("predates", "predating", "predated"),
    ("anticipates", "anticipating", "anticipated"),
    ("prepares", "preparing", "prepared"),
    ("signals", "signaling", "signaled"),
    ("starts off", "starting off", "started off"),
    ("begins", "beginning", "begun"),
    ("initiates", "initiating", "initiated"),
)
# and one whose subject is heard later
TRAILS = (
    ("follows", "following", "followed"),
    ("trails", "trailing", "trailed"),
    ("chases", "chasing", "chased"),
    ("pursues", "pursuing", "pursued"),
    ("replaces", "replacing", "replaced"),
    ("ends", "ending", "ended"),
    ("tails", "tailing", "tailed"),
    ("displaces", "displacing", "displaced"),
    ("interrupts", "interrupting", "interrupted"),
    ("answers", "answering", "answered"),
    ("finishes", "finishing", "finished"),
    ("cuts off", "cutting off", "cut off"),
    ("relieves", "relieving", "relieved"),
    ("overtakes", "overtaking", "overtaken"),
    ("stops", "stopping", "stopped"),
    ("concludes", "concluding", "concluded"),
)
FROM = (
    *("starts with", "begins with", "started with", "began with", "commences with", "starts from"),
    *("sets out with", "starts off with", "is first", "begins as", "begins by"),
)
TO = (
    *("ends with", "finishes with", "stops with", "concludes with", "ended with", "ends in"),
    *("comes to an end with", "finished with", "is lastly", "ends as", "ends by"),
)
FIRST = ("first", "initial", "earlier", "former", "starting", "beginning")
LAST = ("last", "final", "later", "latter", "second", "next", "ending", "following")
THING = ("sound", "thing", "noise", "event", "part", "one")


def _joint(draws: Draws) -> str:
    return draws.pick((", ", ", and ", " and ", ", but ", "; ", ". ", " ", ", with ", " with "))


def _adverb(draws: Draws) -> str:
    """One sound, and of the other when it is heard."""
    late = draws.chance(0.5)
    named, said = ("{0}", "{1}") if late else ("{1}", "{0}")
    words = draws.pick(LATER if late else EARLIER)
    if draws.chance(0.5):
        words = draws.pick(DEGREES) + draws.pick(
            ("after", "following", "later than", "subsequent to", "behind")
            if late
            else ("before", "prior to", "ahead of", "earlier than", "in advance of", "previous to")
        )
        words += " " + draws.pick(POINTERS)
    rest = draws.pick((f"{words} {said}", f"{words} {said}", f"{said} {words}"))
    if draws.chance(0.4):
        heard = draws.pick(HEARD)
        rest = draws.pick(
            (f"{words} {said} {heard}", f"{said} {heard} {words}", f"{words} there is {said}")
        )
    return named + _joint(draws) + rest


def _both(draws: Draws) -> str:
    """Of both sounds when they are heard."""
    early, late = draws.pick(EARLIER), draws.pick(LATER)
    heard = draws.pick(("", "", " " + draws.pick(HEARD)))
    parts = [
        draws.pick((f"{early} {{0}}{heard}", f"{{0}}{heard} {early}")),
        draws.pick((f"{late} {{1}}{heard}", f"{{1}}{heard} {late}")),
    ]
    return _joint(draws).join(draws.some(parts, 2))


def _preposition(draws: Draws) -> str:
    """before, after and what may stand in their place."""
    early = draws.chance(0.5)
    a, b = ("{0}", "{1}") if early else ("{1}", "{0}")
    word = draws.pick(DEGREES) + draws.pick(BEFORE if early else AFTER)
    heard = draws.pick(("", "", " " + draws.pick(HEARD)))
    shape = draws.pick(("{a}{h} {w} {b}", "{w} {b}, {a}{h}", "{w} {b} {h} {a}", "{a}, {w} {b}"))
    return shape.format(a=a, b=b, w=word, h=heard).replace("  ", " ")


def _verb(draws: Draws) -> str:
    """Verbs in both voices."""
    leads = draws.chance(0.5)
    active, participle, passive = draws.pick(LEADS if leads else TRAILS)
    subject, target = ("{0}", "{1}") if leads else ("{1}", "{0}")
    comma = draws.pick((" ", ", "))
    degree = draws.pick(DEGREES)
    if draws.chance(0.4):
        said = draws.pick((active, active, participle, f"which {active}", f"is {participle}"))
        return f"{subject}{comma}{said} {target}"
    said = draws.pick(("", "", "", "is ", "which is ", "being ", "gets ", "was ", "that was "))
    return f"{target}{comma}{said}{degree}{passive} by {subject}"


def _clause(draws: Draws) -> str:
    """One ends, the other begins."""
    ends, starts = "{0} " + draws.pick(ENDS), "{1} " + draws.pick(STARTS)
    if draws.chance(0.25):
        return draws.pick(("{1} ", "{1}, ")) + draws.pick(("after ", "once ", "when ")) + ends
    if draws.chance(0.5):
        word = draws.pick(("when", "once", "after", "as soon as", "now that", "where", "since"))
        return draws.pick((f"{word} {ends}, {starts}", f"{starts} {word} {ends}"))
    word = draws.pick(("before", "until", "by the time", "till", "and then", "and", "then"))
    if word in ("before", "until", "till", "by the time") and draws.chance(0.5):
        heard = draws.pick((ends, "{0} " + draws.pick(HEARD), "{0}"))
        return f"{word} {starts}, {heard}"
    return f"{ends} {word} {starts}"


def _whole(draws: Draws) -> str:
    """What the recording begins and ends with."""
    it, begins, ends = draws.pick(WHOLE), draws.pick(FROM), draws.pick(TO)
    link = draws.pick((" and ", ", ", " and it ", ", and ", " but ", " and later ", ", then it "))
    if draws.chance(0.5):
        return f"{it} {begins} {{0}}{link}{ends} {{1}}"
    link = draws.pick((" and ", ", ", " and it ", " after it ", " but it ", ", though it "))
    return f"{it} {ends} {{1}}{link}{begins} {{0}}"


def _ordinal(draws: Draws) -> str:
    """The first sound is …"""
    thing, first, last = draws.pick(THING), draws.pick(FIRST), draws.pick(LAST)
    parts = [
        draws.pick((f"the {first} {thing} is {{0}}", f"{{0}} is the {first}")),
        draws.pick((f"the {last} {thing} is {{1}}", f"{{1}} is the {last}")),
    ]
    said = draws.some(parts, 2)
    if draws.chance(0.4):  # one alone is enough
        return draws.pick((f"{said[0]}", f"{said[0]},")) + (
            " the other is {1}" if "{0}" in said[0] else " the other is {0}"
        )
    return _joint(draws).join(said)


SHAPES: tuple[tuple[Callable[[Draws], str], int], ...] = (
    (_adverb, 6),
    (_both, 3),
    (_preposition, 4),
    (_verb, 6),
    (_clause, 3),
    (_whole, 2),
    (_ordinal, 2),
)


@lru_cache(maxsize=2)
def grammar_frames(n: int = N_FRAMES, seed: int = 0) -> tuple[str, ...]:
    """`n` different wordings, the same ones every time.

    >>> frames = grammar_frames()
    >>> len(frames), all("{0}" in f and "{1}" in f for f in frames)
    (4000, True)
    """
    shapes = [shape for shape, weight in SHAPES for _ in range(weight)]
    draws, found = Draws(seed, "grammar of order"), dict[str, None]()
    while len(found) < n:
        frame = draws.pick(shapes)(draws)
        if draws.chance(0.1):
            frame = draws.pick(OPENERS) + frame
        if not any(word in frame for word in NEVER_SAID):
            found[frame] = None
    return tuple(found)
