"""Arrays as the page reads them: base64 of little-endian numbers, with what undoes the rounding."""

from __future__ import annotations

import base64
from typing import TypedDict

import numpy as np
import numpy.typing as npt

Values = npt.ArrayLike


class Packed(TypedDict, total=False):
    """An array in JSON."""

    kind: str
    """f32, i16 (rows of integers, each with its own scale) or u8 (between `low` and `high`)."""
    shape: list[int]
    data: str
    scale: str
    low: float
    high: float


def floats(values: Values) -> Packed:
    """float32, nothing lost that the store had."""
    array = np.ascontiguousarray(values, "<f4")
    return {"kind": "f32", "shape": list(array.shape), "data": _text(array)}


def rows_of_integers(values: Values) -> Packed:
    """16 bits a number and a scale a row: an error of at most 1.6e-5 of the row's largest value."""
    array = np.asarray(values, np.float64)
    flat = array.reshape(len(array), -1)
    scale = np.abs(flat).max(1, initial=0.0) / 32767.0
    whole = np.round(flat / np.where(scale > 0, scale, 1.0)[:, None]).astype("<i2")
    return {
        "kind": "i16",
        "shape": list(array.shape),
        "data": _text(whole),
        "scale": _text(scale.astype("<f4")),
    }


def bytes_between(values: Values, low: float, high: float) -> Packed:
    """8 bits a number, for pictures; what lies outside is cut off."""
    array = np.asarray(values, np.float64)
    span = high - low if high > low else 1.0
    levels = np.round(np.clip((array - low) / span, 0, 1) * 255).astype(np.uint8)
    return {
        "kind": "u8",
        "shape": list(array.shape),
        "data": _text(levels),
        "low": float(low),
        "high": float(high),
    }


def _text(array: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
