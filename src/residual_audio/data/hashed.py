"""Splits that follow from names alone: the same on every machine, whatever else is in the data.

A source (recording, speaker) is either for training or for validation, and so is a pair of classes.
What is asked of training data and of the data that judges it is the same question with the other
answer, so nothing can be on both sides.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

from residual_audio.errors import InputError

Part = Literal["all", "train", "held-out"]
PARTS: tuple[Part, ...] = ("all", "train", "held-out")
HELD_OUT_PAIRS, HELD_OUT_SOURCES = 0.2, 0.1
"""Share of the class pairs, and of the sources, that are held out."""


def check_part(part: str, what: str) -> Part:
    for known in PARTS:
        if part == known:
            return known
    raise InputError(f"{what} '{part}': give one of {', '.join(PARTS)}")


def place(*names: str) -> float:
    """A number in [0, 1) that follows from the names."""
    digest = blake2b("\n".join(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def pair_is_in(first: str, second: str, part: Part) -> bool:
    """Whether two classes may stand together in this part, in either order."""
    if part == "all":
        return True
    held_out = place("class pair", *sorted((first, second))) < HELD_OUT_PAIRS
    return held_out == (part == "held-out")


def source_is_in(group: str, part: Part) -> bool:
    """Whether a recording, with everything cut from it, is in this part."""
    if part == "all":
        return True
    return (place("source", group) < HELD_OUT_SOURCES) == (part == "held-out")
