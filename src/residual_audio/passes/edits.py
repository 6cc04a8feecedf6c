"""Edits as values: what takes the place of a unit's output, by the names of units.

>>> import residual_audio as ra
>>> ra.scale(0.5)
Scale(factor=0.5)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.passes.places import what_runs
from residual_audio.types import FloatArray

Function = Callable[[Tensor], Tensor]
"""Of what a unit gives: [clip, token, d]; of `output`, [clip, latent]."""


class Kept(Protocol):
    """Values of units in clips, as a run of a model keeps them."""

    @property
    def n_clips(self) -> int: ...

    @property
    def units(self) -> tuple[str, ...]:
        """Heads, sites and `output`, by name."""

    def value(self, unit: str) -> FloatArray:
        """[clip, token, d]; of `output`, [clip, latent]."""


@dataclass(frozen=True)
class Zero:
    """Nothing in place of a unit's output."""

    def of(self, unit: str) -> Function:
        return torch.zeros_like

    def digest(self, unit: str) -> str:
        return "zero"


@dataclass(frozen=True)
class Scale:
    """A unit's output, so many times."""

    factor: float

    def of(self, unit: str) -> Function:
        return lambda x: x * self.factor

    def digest(self, unit: str) -> str:
        return f"scale({self.factor!r})"


@dataclass(frozen=True, repr=False)
class Mean:
    """The mean of a unit's output over clips and tokens of a reference."""

    reference: Kept | npt.NDArray[Any]

    def __repr__(self) -> str:
        if isinstance(self.reference, np.ndarray):
            return f"Mean(of {len(self.reference)} dimensions)"
        return f"Mean({_said(self.reference)})"

    def of(self, unit: str) -> Function:
        mean = torch.from_numpy(self._mean(unit))

        def put(x: Tensor) -> Tensor:
            if mean.shape != x.shape[-1:]:
                raise InputError(
                    f"the mean for {unit} has shape {tuple(mean.shape)}, {unit} has "
                    f"{x.shape[-1]} dimensions"
                )
            return mean.to(x).expand_as(x)

        return put

    def digest(self, unit: str) -> str:
        return f"mean({_digest(self._mean(unit))})"

    def _mean(self, unit: str) -> FloatArray:
        if isinstance(self.reference, np.ndarray):
            return np.ascontiguousarray(self.reference, np.float64)
        value = _value(self.reference, unit)
        return value.reshape(-1, value.shape[-1]).mean(0, dtype=np.float64)


@dataclass(frozen=True, repr=False)
class Patch:
    """A unit's output in other clips: of one clip for every clip, or clip by clip."""

    source: Kept

    def __repr__(self) -> str:
        return f"Patch({_said(self.source)})"

    def of(self, unit: str) -> Function:
        value = torch.from_numpy(np.ascontiguousarray(_value(self.source, unit)))

        def put(x: Tensor) -> Tensor:
            donor = value if len(value) == 1 else value[self._rows(len(x))]
            if donor.shape[1:] != x.shape[1:]:
                raise InputError(
                    f"{unit} has {_size(x)} here and {_size(donor)} in the clips to patch from: "
                    "they must be heard at one length"
                )
            return donor.to(x).expand_as(x)

        return put

    def digest(self, unit: str) -> str:
        return f"patch({_digest(_value(self.source, unit))})"

    def _rows(self, n: int) -> list[int]:
        now, there = what_runs(), self.source.n_clips
        if now is None or now.n_items != there or len(now.places) != n:
            here = "others" if now is None else f"{now.n_items}"
            raise InputError(
                f"{there} clips cannot be patched into {here}: patch from one clip "
                "(cache.clip(0)), or into as many as there are"
            )
        return list(now.places)


@dataclass(frozen=True)
class Applied:
    """A function of what a unit gives, checked."""

    function: Function

    def of(self, unit: str) -> Function:
        def put(x: Tensor) -> Tensor:
            found = self.function(x)
            if not isinstance(found, Tensor) or found.shape != x.shape:
                got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise InputError(
                    f"the function at {unit} was given a tensor of shape {tuple(x.shape)} and "
                    f"gave {got}: an edit keeps the shape"
                )
            return found.to(x)

        return put

    def digest(self, unit: str) -> str:
        return ""  # two functions cannot be told apart by what they do


UnitEdit = Zero | Scale | Mean | Patch | Function
"""What may be done to a unit."""
UnitEdits = Mapping[str, UnitEdit]
"""By the names of units; `*` stands for any part of a name."""


def zero() -> Zero:
    """Take a unit out: zeros in place of its output.

    >>> import residual_audio as ra
    >>> model = ra.load_model("nano")
    >>> wave = ra.load_dataset("synthetic").read(ra.load_dataset("synthetic").clips[0], 32000)
    >>> plain = model.embed_audio([wave], sample_rate=32000)
    >>> without = model.embed_audio([wave], sample_rate=32000, edit={"s3": ra.zero()})
    >>> bool(abs(plain - without).max() > 0.01)
    True
    """
    return Zero()


def scale(factor: float) -> Scale:
    """A unit's output, so many times; 1 is the identity.

    >>> import residual_audio as ra
    >>> ra.scale(2.0)
    Scale(factor=2.0)
    """
    if not np.isfinite(factor):
        raise InputError(f"a factor of {factor} is not a number")
    return Scale(float(factor))


def mean(reference: Kept | npt.NDArray[np.floating]) -> Mean:
    """The mean of a unit over clips and tokens, in place of its output.

    `reference` is a `Cache` that kept the unit, or the mean itself [d].

    >>> import numpy as np, residual_audio as ra
    >>> model = ra.load_model("nano")
    >>> noise = np.random.default_rng(0).normal(size=(2, 32000)) / 10
    >>> reference = model.run(list(noise), keep="s3.b1.h0", sample_rate=32000)
    >>> edit = {"s3.b1.h0": ra.mean(reference)}
    >>> model.embed_audio(list(noise), sample_rate=32000, edit=edit).shape
    (2, 256)
    """
    return Mean(reference)


def patch(cache: Kept) -> Patch:
    """A unit's output in the clips of a `Cache`, in place of its own.

    A cache of one clip is patched into every clip; one of several into as many, clip by clip. As
    an edit by itself it patches every unit that the cache kept.

    >>> import numpy as np, residual_audio as ra
    >>> model = ra.load_model("nano")
    >>> a, b = np.random.default_rng(0).normal(size=(2, 32000)) / 10
    >>> cache = model.run([a], keep="s3", sample_rate=32000)
    >>> patched = model.embed_audio([b], sample_rate=32000, edit=ra.patch(cache))
    """
    return Patch(cache)


def _value(source: Kept, unit: str) -> FloatArray:
    if unit not in source.units:
        raise InputError(f"{unit} was not kept; kept: {', '.join(source.units) or 'no unit'}")
    return source.value(unit)


def _said(kept: Kept) -> str:
    units, clips = len(kept.units), kept.n_clips
    many = kept.units[0] if units == 1 else f"{units} units"
    return f"{many} of {clips} clip{'' if clips == 1 else 's'}"


def _digest(array: FloatArray) -> str:
    whole = np.ascontiguousarray(array)
    about = repr((whole.shape, whole.dtype.str)).encode()
    return hashlib.sha256(about + whole.tobytes()).hexdigest()[:16]


def _size(x: Tensor) -> str:
    return " × ".join(str(n) for n in x.shape[1:])
