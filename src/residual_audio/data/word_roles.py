"""Words that play one part in a sentence about order, and sentences with them.

"Created", "launched" and "started" play the same part in "rain … by a bell": the sound that is
named first is heard later. A model may therefore learn one vector for the part, from words that are
said here, and give it to a word that is not ("preceded"), as long as it is known which part that
word plays. Nothing that a model is judged by is said here, nor any word of `UNSAID`.
"""

from __future__ import annotations

from functools import lru_cache

from residual_audio.data.draws import Draws
from residual_audio.data.wording_grammar import DEGREES, HEARD

N_FRAMES = 6000
ROLES: dict[str, tuple[str, ...]] = {
    "led by": (
        *("created", "started", "launched", "produced", "generated", "activated", "released"),
        *("ignited", "raised", "prepared"),
    ),
    "trailed by": (
        *("replaced", "ended", "finished", "stopped", "muted", "broken", "overtaken", "echoed"),
    ),
    "leads": (
        *("starts", "announces", "creates", "produces", "signals", "prepares", "ignites"),
        *("releases", "generates", "begins"),
    ),
    "trails": (
        *("follows", "ends", "stops", "finishes", "echoes", "interrupts", "overtakes", "trails"),
    ),
    "pointer": ("it", "those", "them", "which"),
}
"""What is said. The first two are passives, the next two their active forms."""
UNSAID: dict[str, tuple[str, ...]] = {
    "passive": ("preceded", "triggered", "initiated", "caused", "interrupted", "answered"),
    "active": ("precedes",),
    "pointer": ("that",),
}
"""Whether a verb leads or trails is not said either: a sentence encoder tells."""
JOINTS = (", ", ", and ", " and ", ", but ", "; ", ". ", ", with ")


def _verb(draws: Draws) -> str:
    leads, passive = draws.chance(0.5), draws.chance(0.6)
    role = ("led by" if leads else "trailed by") if passive else ("leads" if leads else "trails")
    word, degree, comma = draws.pick(ROLES[role]), draws.pick(DEGREES), draws.pick((" ", " ", ", "))
    subject, target = ("{0}", "{1}") if leads else ("{1}", "{0}")
    if passive:
        said = draws.pick(("", "", "", "is ", "which is ", "being ", "was "))
        return f"{target}{comma}{said}{degree}{word} by {subject}"
    return f"{subject}{comma}{draws.pick(('', '', 'which ', 'clearly '))}{word} {target}"


def _pointer(draws: Draws) -> str:
    late = draws.chance(0.5)
    named, said = ("{0}", "{1}") if late else ("{1}", "{0}")
    word = draws.pick(
        ("after", "after", "after", "following")
        if late
        else ("before", "before", "prior to", "ahead of")
    )
    words = draws.pick((*4 * ("",), *DEGREES)) + f"{word} {draws.pick(ROLES['pointer'])}"
    heard = draws.pick(HEARD)
    rest = draws.pick(
        (
            *2 * (f"{words} {said}",),
            *(f"{words} {said} {heard}", f"{words} there is {said}", f"{words}, {said}"),
        )
    )
    return named + draws.pick(JOINTS) + rest


@lru_cache(maxsize=2)
def role_frames(n: int = N_FRAMES, seed: int = 0) -> tuple[str, ...]:
    """`n` wordings, two of three with a verb, the same ones every time.

    >>> frames = role_frames()
    >>> len(frames), all("{0}" in f and "{1}" in f for f in frames)
    (6000, True)
    """
    draws = Draws(seed, "roles of words")
    return tuple(_verb(draws) if draws.chance(2 / 3) else _pointer(draws) for _ in range(n))
