"""Rows by name: what came out of a pass, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from residual_audio.embeddings.vector_cache import Embedded
from residual_audio.errors import InputError
from residual_audio.passes.embed import AudioVectors


def named_rows(
    found: AudioVectors,
    names: Sequence[str],
    model: str,
    *,
    may_be_none: bool = False,
    remarks: Mapping[str, str] | None = None,
) -> Embedded:
    """Vectors with the names of their items; nothing heard at all, or not finite, is an error."""
    skipped = {names[place]: str(error) for place, error in found.skipped.items()}
    if not len(found.vectors) and not may_be_none:
        first = next(iter(skipped.values()), "nothing to read")
        raise InputError(f"none of {len(names)} clips could be read; the first: {first}")
    ids = tuple(names[place] for place in found.places)
    finite = np.isfinite(found.vectors).all(1)
    if len(ids) and not finite.all():
        bad = ids[int(np.argmin(finite))]
        raise InputError(f"'{bad}' has an embedding that is not finite with model '{model}'")
    return Embedded(found.vectors, ids, skipped, remarks or {})


def joined(pieces: Sequence[Embedded]) -> Embedded:
    """Pieces of one data set after another; nothing heard in any of them is an error."""
    ids = tuple(name for piece in pieces for name in piece.ids)
    skipped = {name: why for piece in pieces for name, why in piece.skipped.items()}
    if not ids:
        first = next(iter(skipped.values()), "nothing to read")
        raise InputError(f"none of {len(skipped)} clips could be read; the first: {first}")
    remarks = {name: why for piece in pieces for name, why in piece.remarks.items()}
    return Embedded(np.concatenate([piece.vectors for piece in pieces]), ids, skipped, remarks)
