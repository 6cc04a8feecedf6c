"""Words for two sounds: which came first, which is louder, higher or nearer.

In a frame {0} and {1} are the two sounds, {2} and {3} the same with their adjectives ("a loud
dog", "a quiet bell"). Of order frames, {0} is the one that is heard first; of attribute frames, {0}
is the one with the first adjective. Half of the many order frames name the later sound first; of
the plain ones only one does, so there the place in the sentence says nearly all. `more` has the
many and others, to learn from; `grammar` puts thousands together from parts (wording_grammar.py),
`roles` has words that stand for others like them (word_roles.py). Some sets are never trained on
and ask whether a model has learned what the words mean or only the frames: settings are chosen on
`choosing` and `alike`, and `held-out`, of which `asked` is a part, is what is reported.
"""

from __future__ import annotations

import re

from residual_audio.data.draws import Draws
from residual_audio.data.sounds.scene import qualified
from residual_audio.data.word_roles import role_frames
from residual_audio.data.wording_grammar import grammar_frames
from residual_audio.errors import InputError

ORDER: dict[str, tuple[str, ...]] = {
    "plain": (
        "{0} and then {1}",
        "{0} followed by {1}",
        "first {0}, then {1}",
        "{0} before {1}",
        "{1} after {0}",
        "{0}, and {1} afterwards",
    ),
    "many": (
        "{0} and then {1}",
        "{0}, then {1}",
        "first {0}, then {1}",
        "{0} followed by {1}",
        "{0} is followed by {1}",
        "{0} before {1}",
        "{0} comes before {1}",
        "{0}, and {1} afterwards",
        "{0}, after which {1} is heard",
        "{0}, next {1}",
        "{0} and finally {1}",
        "{0} earlier, {1} later",
        "{0} at the beginning, {1} at the end",
        "it starts with {0} and ends with {1}",
        "after {0}, {1}",
        "after {0} comes {1}",
        "once {0} is over, {1} is heard",
        "{0} first, {1} second",
        "{1} after {0}",
        "{1} comes after {0}",
        "{1} follows {0}",
        "{1}, following {0}",
        "before {1}, {0}",
        "before {1} comes {0}",
        "{1}, but first {0}",
        "{1}, and earlier {0}",
        "{1}, with {0} just before it",
        "{1}, and before it {0}",
        "{1}; prior to this, {0}",
        "{1}, previously {0}",
        "{1}, introduced by {0}",
        "{1}, led in by {0}",
        "{1}, but {0} beforehand",
        "{1} at the end, {0} at the beginning",
        "it ends with {1}, having started with {0}",
        "{1} second, {0} first",
    ),
    "choosing": (
        "{1}, heralded by {0}",
        "{1}, and ahead of that {0}",
        "{1} on the heels of {0}",
        "{1} where {0} came earlier",
        "{0} makes room for {1}",
        "{0} is superseded by {1}",
        "{0} at the outset, {1} at the close",
        "it kicks off with {0} and winds up with {1}",
    ),
    "alike": (
        "{1} triggered by {0}",
        "{1}, initiated by {0}",
        "{1} caused by {0}",
        "{0} interrupted by {1}",
        "{0}, answered by {1}",
        "{1}, and ahead of that {0}",
        "{1}, and prior to that {0}",
        "{0}, and following that {1}",
    ),
    "asked": (
        "{1}, and before that {0}",
        "{1} preceded by {0}",
    ),
    "held-out": (
        "{1}, and before that {0}",
        "{1} preceded by {0}",
        "{1}, with {0} leading up to it",
        "{1} in the wake of {0}",
        "{0} precedes {1}",
        "{0} gives way to {1}",
        "{0}, succeeded by {1}",
        "it opens with {0} and closes with {1}",
    ),
}
ORDER["more"] = (
    *ORDER["many"],
    "{0}, and after that {1}",
    "{0}, and then comes {1}",
    "{0}, with {1} coming next",
    "{0} until {1} takes over",
    "{0} turns into {1}",
    "{0} and subsequently {1}",
    "{0}, later {1}",
    "{0}, and right after it {1}",
    "{0}, and soon after {1}",
    "{0} stops and {1} begins",
    "{0} is heard prior to {1}",
    "{0} is heard earlier than {1}",
    "{0} fades and {1} sets in",
    "{0} is replaced by {1}",
    "initially {0}, eventually {1}",
    "to begin with {0}, in the end {1}",
    "starting with {0}, ending with {1}",
    "when {0} ends, {1} starts",
    "as soon as {0} stops, {1} begins",
    "{1}, and prior to it {0}",
    "{1}, and ahead of it {0}",
    "{1}, with {0} coming first",
    "{1}, though {0} was heard first",
    "{1}, having begun with {0}",
    "{1}, prefaced by {0}",
    "{1}, announced by {0}",
    "{1}, ushered in by {0}",
    "{1}, started off by {0}",
    "{1} subsequent to {0}",
    "{1} is heard after {0}",
    "{1} is heard later than {0}",
    "{1} takes over from {0}",
    "{1} replaces {0}",
    "{1} once {0} has stopped",
    "{1} when {0} is over",
    "{1} as soon as {0} ends",
    "{1} later, {0} earlier",
    "{1} last, {0} first",
    "{1} in the end, {0} at first",
    "finally {1}, initially {0}",
    "ending with {1}, starting with {0}",
    "the last sound is {1}, the first is {0}",
    "the first sound is {0}, the last is {1}",
    "{0}; {1} comes later",
    "{0} comes first, {1} comes last",
    "{0} is the first thing heard, {1} the next",
    "{0} comes ahead of {1}",
    "{0} is heard first and {1} is heard last",
    "{0} ends as {1} starts",
    "{0} dies down, then {1} starts up",
    "{0}, with {1} to follow",
    "{0} leads into {1}",
    "{0} leads to {1}",
    "{0} announces {1}",
    "{0} introduces {1}",
    "{0} ushers in {1}",
    "{0} earlier than {1}",
    "{0} at first, but {1} after a while",
    "{0} in the first half, {1} in the second half",
    "at the start there is {0}, at the end there is {1}",
    "the recording begins with {0} and finishes with {1}",
    "from {0} to {1}",
    "{0} goes over into {1}",
    "{0} yields to {1}",
    "{0} is taken over by {1}",
    "{0} is over by the time {1} starts",
    "no sooner is {0} over than {1} starts",
    "hearing {0}, and then hearing {1}",
    "{1} comes later than {0}",
    "{1} comes last, {0} comes first",
    "{1} comes next after {0}",
    "{1} arrives after {0} is gone",
    "{1} begins where {0} stops",
    "{1} starts as {0} ends",
    "{1} starts up after {0} dies down",
    "{1}, which follows {0}",
    "{1} following on from {0}",
    "{1}, coming right after {0}",
    "{1} has {0} before it",
    "{1}, before which {0} is heard",
    "{1}, before which there is {0}",
    "{1}, with {0} earlier on",
    "{1}, with {0} in front of it",
    "{1}, with {0} as its introduction",
    "{1} is announced by {0}",
    "{1} is introduced by {0}",
    "{1}, anticipated by {0}",
    "{1}, brought on by {0}",
    "{1}, but not before {0}",
    "{1}, though not until {0} is over",
    "{1} after a while, {0} at first",
    "{1} in the second half, {0} in the first half",
    "{1} was heard after {0} had been heard",
    "{1} afterwards, {0} first",
    "at the end there is {1}, at the start there is {0}",
    "the recording finishes with {1} and begins with {0}",
    "it finished with {1} after starting with {0}",
    "before there was {1} there was {0}",
    "prior to {1}, {0}",
    "until {1} starts, {0}",
    "following {0}, {1}",
    "subsequent to {0}, {1}",
    "earlier than {1}, {0}",
    "later than {0}, {1}",
    "the second sound is {1}, the first is {0}",
)
ATTRIBUTES: dict[str, tuple[str, str]] = {
    "loudness": ("loud", "quiet"),
    "pitch": ("high-pitched", "low-pitched"),
    "distance": ("nearby", "distant"),
    "pace": ("fast", "slow"),
}
QUALIFIED = {
    "plain": ("{2} and {3}", "{2} along with {3}", "there is {2} and there is {3}"),
    "many": (
        "{2} and {3}",
        "{3} and {2}",
        "{2} along with {3}",
        "there is {2} and there is {3}",
        "{3} together with {2}",
        "{2} with {3}",
    ),
    "choosing": ("{2} plus {3}", "{3} beside {2}"),
    "held-out": ("{2} as well as {3}", "{3} can be heard, and so can {2}"),
}
QUALIFIED["more"] = (
    *QUALIFIED["many"],
    "{3} with {2}",
    "{2} at the same time as {3}",
    "{3} while there is {2}",
    "{2}, {3}",
)
COMPARED: dict[str, dict[str, tuple[str, ...]]] = {
    "loudness": {
        "many": (
            "{0} louder than {1}",
            "{1} quieter than {0}",
            "{0} is loud and {1} is quiet",
            "{1} softly while {0} is loud",
        ),
        "held-out": ("{0} drowns out {1}", "{1} is fainter than {0}"),
    },
    "pitch": {
        "many": (
            "{0} higher than {1}",
            "{1} lower than {0}",
            "{0} at a high pitch and {1} at a low pitch",
        ),
        "held-out": ("{1} sounds deeper than {0}", "{0} sounds brighter than {1}"),
    },
    "distance": {
        "many": (
            "{0} closer than {1}",
            "{1} farther away than {0}",
            "{0} up close and {1} in the distance",
            "{1} in the background, {0} close by",
        ),
        "held-out": ("{1} is more remote than {0}", "{0} near, {1} far off"),
    },
    "pace": {
        "many": (
            "{0} faster than {1}",
            "{1} slower than {0}",
            "{0} at a fast pace and {1} at a slow pace",
        ),
        "held-out": ("{0} is quicker than {1}", "{1} drags compared with {0}"),
    },
}
LISTED_AMONG_GRAMMAR = 7
"""How often each of the longest list stands among those that a grammar makes: a fifth of all."""
UNORDERED = "{0} and {1}"
"""What there is to say where neither order nor attributes are told."""

Phrases = tuple[tuple[str, ...], tuple[str, ...]]
"""What the first sound may be called, and the second; the first name of each is the plainest."""


def frames_for(kind: str, attribute: str, wording: str) -> tuple[str, ...]:
    """Frames of a wording by its name, or one frame written out."""
    if "{" in wording:
        known = "{0}{1}" if kind == "order" else "{0}{1}{2}{3}"
        fields = re.findall(r"\{.*?\}", wording)
        if len(set(fields)) < 2 or any(name not in known for name in fields):
            raise InputError(f"wording '{wording}': {{0}} and {{1}} stand for the two sounds")
        return (wording,)
    if wording == "roles" and kind == "order":
        return role_frames()
    if wording == "grammar":  # of order alone: attributes are said as in the longest list
        if kind == "order":
            return grammar_frames() + LISTED_AMONG_GRAMMAR * ORDER["more"]
        wording = "more"
    if wording not in ORDER:
        raise InputError(
            f"wording '{wording}': give {', '.join(ORDER)}, grammar, roles, unordered, or a frame "
            "with {0} and {1}"
        )
    if kind == "order":
        return ORDER[wording]
    compared = COMPARED[attribute].get("many" if wording == "more" else wording, ())
    return QUALIFIED[wording] + compared


def tell(
    kind: str, attribute: str, wording: str, phrases: Phrases, draws: Draws, n: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`n` captions of each of two clips: of the pair, and of the pair with its sounds exchanged.

    Caption k of one and caption k of the other have the same frame and the same names.
    """
    first, second = [], []
    if wording == "unordered":
        for _ in range(n):
            names = draws.some([draws.pick(phrases[0]), draws.pick(phrases[1])], 2)
            first.append(sentence(UNORDERED.format(*names)))
        return tuple(first), tuple(first)
    for frame in draws.some(frames_for(kind, attribute, wording), n):
        # an adjective goes before the plain name only: "a loud dog", not "loud someone whistling"
        plain = "{2}" in frame or "{3}" in frame
        a, b = (names[0] if plain else draws.pick(names) for names in phrases)
        if kind == "order":
            said = frame.format(a, b), frame.format(b, a)
        else:
            up, down = ATTRIBUTES[attribute]
            said = (
                frame.format(a, b, qualified(a, up), qualified(b, down)),
                frame.format(b, a, qualified(b, up), qualified(a, down)),
            )
        first.append(sentence(said[0]))
        second.append(sentence(said[1]))
    return tuple(first), tuple(second)


def sentence(text: str) -> str:
    return text[0].upper() + text[1:]
