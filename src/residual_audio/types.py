"""The nouns everything speaks: clips, heads, sites, spectra, gains, scores and results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError

FloatArray = npt.NDArray[np.floating[Any]]

SiteKind = Literal["attention", "mlp"]


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording."""

    id: str
    """Unique in its data set and stable across machines (usually the path below the root)."""
    path: Path | None = None
    """The audio file; None for a clip that is made on demand (`synthetic`)."""
    label: str | None = None
    captions: tuple[str, ...] = ()
    fold: int | None = None
    """Official fold, where the data set has one."""
    group: str | None = None
    """Clips of one source (recording, speaker, instrument) share it; splits keep it whole."""


@dataclass(frozen=True, slots=True, order=True)
class Head:
    """One attention head; sorts in order of computation and prints as `s2.b5.h11`."""

    stage: int
    block: int
    head: int

    def __str__(self) -> str:
        return f"s{self.stage}.b{self.block}.h{self.head}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read `s2.b5.h11`, or the `L2_B5_H11` of published tables."""
        found = re.fullmatch(r"[sL](\d+)[._][bB](\d+)[._][hH](\d+)", text.strip())
        if found is None:
            raise InputError(f"'{text}' is not a head: expected a name like s2.b5.h11")
        return cls(*(int(part) for part in found.groups()))


@dataclass(frozen=True, slots=True)
class Site:
    """One place in the encoder that adds to the residual stream."""

    stage: int
    block: int
    kind: SiteKind
    n_heads: int
    """Heads of the attention; 0 for an MLP."""
    d_head: int
    """Width of one head's raw output; 0 for an MLP."""
    width: int
    """Width of the residual stream there."""

    def __str__(self) -> str:
        return f"s{self.stage}.b{self.block}.{self.kind}"

    @property
    def heads(self) -> tuple[Head, ...]:
        return tuple(Head(self.stage, self.block, h) for h in range(self.n_heads))


@dataclass(frozen=True)
class Spectrum:
    """Centred PCA of one unit, in float64."""

    mean: FloatArray
    """[d]"""
    basis: FloatArray
    """[k, d], rows orthonormal, in order of falling variance."""
    eigenvalues: FloatArray
    """[k], variances along the rows of `basis` (ddof 1)."""
    n: int
    """How many vectors it was fitted on."""


@dataclass(frozen=True)
class Gains:
    """λ for each unit, with the spectra it acts in: y = x + Φᵀ diag(λ − 1) Φ (x − μ)."""

    gains: Mapping[str, FloatArray]
    """Unit name (`s2.b5.h11`, `s2.b5.attention`, `s2.b5.mlp`, `s2`, `output`) → [k]."""
    spectra: Mapping[str, Spectrum]
    keep_mean: bool = True
    """True: λ = 1 is exactly the identity. False: the mean is dropped, as in the papers."""
    path: Literal["network", "direct"] = "network"
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    means: Mapping[str, float] = field(default_factory=dict)
    """Unit name → gain λ₀ of its mean, which adds (λ₀ − 1) μ; 1 where a unit is not listed."""


@dataclass(frozen=True, slots=True)
class Score:
    """One number with what it takes to judge it."""

    name: str
    value: float
    low: float
    """Lower end of the 95% interval; NaN where none can be had."""
    high: float
    n: int
    chance: float | None = None


@dataclass(frozen=True)
class Result:
    """What one task found for one model on one data set: one JSON file."""

    task: str
    model: str
    dataset: str
    split: str
    scores: tuple[Score, ...]
    per_item: Mapping[str, list[Any]] | None = None
    """Columns of equal length, one row an item."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    schema_version: int = 1
    details: Mapping[str, Any] = field(default_factory=dict)
    """What a score cannot hold: a confusion matrix, a per-class table, warnings."""

    def __getitem__(self, name: str) -> Score:
        for score in self.scores:
            if score.name == name:
                return score
        raise InputError(f"no score '{name}'; there are: {', '.join(s.name for s in self.scores)}")
