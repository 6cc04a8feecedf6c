"""What every metric asks of its input, and what it says when it does not get it.

Edge cases are results, not exceptions: a value that cannot be had is NaN with a reason. Only input
that nobody can have meant is an error: the wrong number of axes, or NaN and infinity, named by
head and clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError

Array = npt.NDArray[Any]


def as_heads(x: Array) -> Array:
    """View as [head, clip, d]; a single [clip, d] becomes one head."""
    x = np.asarray(x)
    if x.ndim == 2:
        x = x[None]
    if x.ndim != 3:
        raise InputError(f"expected an array [head, clip, d] or [clip, d], got shape {x.shape}")
    if not np.issubdtype(x.dtype, np.floating):
        x = x.astype(np.float64)
    return x


def check_finite(
    x: Array, heads: Sequence[object] | None = None, clips: Sequence[object] | None = None
) -> None:
    """Raise an error that names the first head and clip that hold NaN or infinity."""
    # a sum is finite when every term is, except for overflow: then look closer
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(x.sum(dtype=np.float64)):
            return
    bad = np.argwhere(~np.isfinite(x).all(axis=-1))
    if not len(bad):
        return
    head, clip = (int(i) for i in bad[0])
    head_name = heads[head] if heads is not None else head
    clip_name = clips[clip] if clips is not None else clip
    raise InputError(
        f"head {head_name}, clip '{clip_name}' holds NaN or infinity "
        f"({len(bad)} such vectors in all): extract that clip again or leave it out"
    )


def input_resolution(x: Array) -> Array:
    """Spacing of representable numbers at the size of each vector's largest entry: [head, clip].

    Differences below it are rounding of the input, whatever it is converted to afterwards.
    """
    return np.abs(x).max(axis=-1).astype(np.float64) * float(np.finfo(x.dtype).eps)


def power_of_two_scale(x: Array) -> float:
    """The power of two next to the largest magnitude in `x`; dividing by it loses no bit."""
    largest = float(np.abs(x).max(initial=0.0))
    return float(np.ldexp(1.0, np.frexp(largest)[1])) if largest > 0 else 1.0
