"""Float32 head outputs in 24 bits and one shared exponent a head.

A head's values are kept as whole multiples of 2^(e − 23), 2^e the power of two above its largest:
off by at most 2^(e − 24), that is by one rounding of float32 at the head's own scale, far below
what the arithmetic of an encoder leaves. It takes a quarter off the largest part of a store.
"""

from __future__ import annotations

import numpy as np

from residual_audio.store.tensors import Array

BITS = 24
_LIMIT = 2**23 - 1
_BIAS = 127


def pack(x: Array) -> Array:
    """float32 [..., d] → bytes [..., 3 d + 1]: little-endian 24-bit integers, then the exponent."""
    largest = np.abs(x).max(axis=-1, initial=0.0)
    exponent = np.clip(np.frexp(largest)[1], -_BIAS, 255 - _BIAS)
    scaled = np.ldexp(x.astype(np.float64), 23 - exponent[..., None])
    whole = np.clip(np.rint(scaled), -_LIMIT, _LIMIT).astype("<i4")
    low = whole[..., None].view(np.uint8)[..., :3]  # ... d byte
    mantissas = low.reshape(*x.shape[:-1], -1)
    return np.concatenate([mantissas, (exponent + _BIAS).astype(np.uint8)[..., None]], axis=-1)


def unpack(packed: Array) -> Array:
    """The inverse: float32 [..., d]."""
    exponent = packed[..., -1].astype(np.int32) - _BIAS
    low = packed[..., :-1].reshape(*packed.shape[:-1], -1, 3)
    # in the upper three bytes, so that the shift back carries the sign
    whole = np.zeros((*low.shape[:-1], 4), np.uint8)
    whole[..., 1:] = low
    values = (whole.view("<i4")[..., 0] >> 8).astype(np.float32)
    return np.ldexp(values, exponent[..., None] - 23)
