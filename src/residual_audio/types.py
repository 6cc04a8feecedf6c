"""The nouns everything speaks: clips, heads, sites, units, spectra, gains, scores and results."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from residual_audio.drawing import Pictured, cell, data_frame, html_table, notes_in
from residual_audio.errors import InputError

if TYPE_CHECKING:
    import pandas

FloatArray = npt.NDArray[np.floating[Any]]
_ROW = ("score", "value", "low", "high", "n", "chance")

SiteKind = Literal["attention", "mlp"]
UnitKind = Literal["head", "attention", "mlp", "stage", "output", "set"]
LEVELS: tuple[UnitKind, ...] = ("head", "attention", "mlp", "stage", "output")
"""Kinds of units that an encoder has by itself; a set is named by whoever puts it together."""


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
    group: str | None = None
    """Clips of one source (recording, speaker, instrument) share it; splits keep it whole."""
    inside: tuple[int, int] | None = None
    """Where in `path` it lies, where that is an archive or a table of many clips."""
    part_of: str | None = None  # of a window: the recording that it is part of
    span: tuple[float, float] | None = None  # and its first second and length there


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
class Unit:
    """Anything that can be tapped, taken out or reweighted, bound to the sites of an encoder.

    A head acts before W_O (the bias of the projection is not its own); a site acts as a whole, bias
    included. A stage is all its sites; `output` is the pooled latent. Units sort in order of
    computation, and print as their name.
    """

    name: str
    kind: UnitKind
    heads: frozenset[Head] = frozenset()
    sites: frozenset[Site] = frozenset()
    block: int = 0
    """The earliest block it touches, counted over all stages; `output` comes after the last."""
    width: int = 0
    """Dimensions of its own space: d_head, or the stream's; 0 where the sites do not tell."""

    def __str__(self) -> str:
        return self.name

    def __lt__(self, other: Unit) -> bool:
        return self._order < other._order

    def __or__(self, other: Unit) -> Unit:
        """Both together, as one set."""
        return unite((self, other), f"{self.name}+{other.name}")

    @property
    def stage(self) -> int:
        """The first stage it touches; −1 for `output`."""
        touched = {head.stage for head in self.heads} | {site.stage for site in self.sites}
        return min(touched, default=-1)

    @property
    def _order(self) -> tuple[int, int, int, str]:
        rank = ("stage", "attention", "head", "mlp", "set", "output").index(self.kind)
        return self.block, rank, min((h.head for h in self.heads), default=0), self.name


UnitLike = Unit | Head | Site | str


def blocks_of(sites: Sequence[Site]) -> dict[tuple[int, int], int]:
    """(stage, block) → number of the block counted over all stages."""
    pairs = dict.fromkeys((site.stage, site.block) for site in sites)
    return {pair: index for index, pair in enumerate(pairs)}


def attention_site(head: Head, sites: Iterable[Site]) -> Site:
    """The attention site that a head belongs to."""
    for site in sites:
        if site.kind == "attention" and (site.stage, site.block) == (head.stage, head.block):
            return site
    raise InputError(f"no attention site for head {head}")


def units_of(sites: Sequence[Site], level: str) -> tuple[Unit, ...]:
    """Every unit of a level (`head`, `attention`, `mlp`, `stage`, `output`), in order."""
    blocks = blocks_of(sites)
    if level == "head":
        return tuple(
            Unit(str(h), "head", frozenset({h}), frozenset(), blocks[s.stage, s.block], s.d_head)
            for s in sites
            for h in s.heads
        )
    if level in ("attention", "mlp"):
        return tuple(
            Unit(str(s), s.kind, frozenset(), frozenset({s}), blocks[s.stage, s.block], s.width)
            for s in sites
            if s.kind == level
        )
    if level == "stage":
        return tuple(_stage_unit(stage, sites) for stage in sorted({s.stage for s in sites}))
    if level == "output":
        return (Unit("output", "output", block=len(blocks)),)
    raise InputError(f"'{level}' is not a level of units: use one of {', '.join(LEVELS)}")


def _stage_unit(stage: int, sites: Sequence[Site]) -> Unit:
    inside = [site for site in sites if site.stage == stage]
    blocks = blocks_of(sites)
    first = min(blocks[site.stage, site.block] for site in inside)
    return Unit(f"s{stage}", "stage", sites=frozenset(inside), block=first, width=inside[0].width)


def parse_units(given: UnitLike | Iterable[UnitLike], sites: Sequence[Site]) -> tuple[Unit, ...]:
    """Units by name, in the order given, each once; `*` stands for any part of a name.

    `s2.b5.h11`, `s2.b5.attention`, `s2.b5.mlp`, `s2`, `output`, `s3.*.h0`, `s*.*.mlp`, a level
    (`head`, `attention` …) for all of its units, or `mine=a+b+c` for a set under its own name.
    """
    single = isinstance(given, Unit | Head | Site | str)
    items: Iterable[UnitLike] = (given,) if single else given  # type: ignore[assignment]
    found: dict[str, Unit] = {}
    for item in items:
        for unit in (item,) if isinstance(item, Unit) else _parse(str(item).strip(), sites):
            found.setdefault(unit.name, unit)
    return tuple(found.values())


def parse_unit(given: UnitLike, sites: Sequence[Site]) -> Unit:
    """One unit; a pattern that fits several gives the set of them."""
    found = parse_units(given, sites)
    return found[0] if len(found) == 1 else unite(found, str(given).strip())


def _parse(text: str, sites: Sequence[Site]) -> tuple[Unit, ...]:
    name, _, members = text.rpartition("=")
    if name or "+" in members:
        united = [unit for part in members.split("+") for unit in _parse(part.strip(), sites)]
        return (unite(united, name or members),)
    if text in LEVELS:
        return units_of(sites, text)
    known = _known(tuple(sites))
    exact = known.get(_canonical(text))
    if exact is not None:
        return (exact,)
    wanted = _canonical(text).split(".")
    found = [unit for name, unit in known.items() if _fits(name.split("."), wanted)]
    if not found:
        heads = sum(site.n_heads for site in sites)
        raise InputError(
            f"'{text}' is no unit of this encoder ({heads} heads in {len(sites)} sites): expected "
            "a name like s2.b5.h11, s2.b5.attention, s2.b5.mlp, s2 or output; * stands for any part"
        )
    return tuple(found)


@lru_cache(maxsize=16)
def _known(sites: tuple[Site, ...]) -> dict[str, Unit]:
    """Every unit by name; hundreds of names are looked up at a time."""
    return {unit.name: unit for level in LEVELS for unit in units_of(sites, level)}


def stage_named(name: str) -> int:
    """The stage that a unit's name tells of, −1 for `output`: where no sites are at hand.

    >>> stage_named("s2.b5.attention"), stage_named("s3"), stage_named("output")
    (2, 3, -1)
    """
    found = re.fullmatch(r"s(\d+)(\..+)?", _canonical(name))
    if found is None and name != "output":
        raise InputError(
            f"'{name}' is no unit: expected a name like s2.b5.h11, s2.b5.mlp, s2, output"
        )
    return -1 if found is None else int(found[1])


def _fits(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Part by part, so that `s2.*` is no head of `s2`."""
    return len(name) == len(pattern) and all(map(fnmatchcase, name, pattern))


def _canonical(text: str) -> str:
    """`L2_B5_H11` of published tables → `s2.b5.h11`."""
    published = re.fullmatch(r"[sL](\d+)[._][bB](\d+)[._][hH](\d+)", text)
    return text if published is None else str(Head(*(int(part) for part in published.groups())))


def unite(units: Sequence[Unit], name: str = "set") -> Unit:
    """All of these as one unit; of none, a unit that touches nothing."""
    heads = frozenset[Head]().union(*(unit.heads for unit in units))
    sites = frozenset[Site]().union(*(unit.sites for unit in units))
    return Unit(name, "set", heads, sites, min((unit.block for unit in units), default=0))


def place_of(unit: Unit) -> dict[str, int]:
    """Stage, block and head where a unit begins, and its block over all stages; −1 for none."""
    touched: list[Head | Site] = [*unit.heads, *unit.sites]
    begin = min(((part.stage, part.block) for part in touched), default=None)
    heads = [head.head for head in unit.heads if (head.stage, head.block) == begin]
    whole = begin is None or unit.kind == "stage"
    return {
        "stage": unit.stage,
        "block": -1 if whole or begin is None else begin[1],
        "head": min(heads, default=-1),
        "block_index": -1 if whole else unit.block,
    }


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        k, d = self.basis.shape
        return f"Spectrum of {k} components in {d} dimensions, from {self.n} vectors"


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        values = np.concatenate([*map(np.ravel, self.gains.values()), np.ones(0)])
        far = f", from {values.min():.3g} to {values.max():.3g}" if values.size else ""
        return f"Gains of {len(self.gains)} units, {self.path} path: {values.size} numbers{far}"


@dataclass(frozen=True, slots=True, repr=False)
class Score:
    """One number with what it takes to judge it.

    >>> Score("top1", 0.815, 0.78, 0.85, 400, 0.02)
    Score top1 0.815 [0.78, 0.85], n 400, chance 0.02
    """

    name: str
    value: float
    low: float
    """Lower end of the 95% interval; NaN where none can be had."""
    high: float
    n: int
    chance: float | None = None

    def __repr__(self) -> str:
        interval = "" if self.low != self.low else f" [{self.low:.3g}, {self.high:.3g}]"
        chance = "" if self.chance is None else f", chance {self.chance:.3g}"
        return f"Score {self.name} {cell(float(self.value))}{interval}, n {self.n}{chance}"


@dataclass(frozen=True, repr=False)
class Result(Pictured):
    """What one task found for one model on one data set: one JSON file.

    >>> Result("zero-shot", "nano", "esc50", "all", (Score("top1", 0.8, 0.7, 0.9, 40, 0.02),))
    Result zero-shot of nano on esc50
      top1 0.8 [0.7, 0.9], n 40, chance 0.02
    """

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

    def __repr__(self) -> str:
        scores = [f"  {repr(score).removeprefix('Score ')}" for score in self.scores]
        notes = [f"  note: {note}" for note in self.notes]
        return "\n".join([f"Result {self._title()}", *scores, *notes])

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = [[cell(value) for value in row.values()] for row in self.rows()]
        return html_table(self._title(), _ROW, rows, self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before believing a number: clips heard before, left out or odd."""
        return notes_in(self.details)

    def rows(self) -> list[dict[str, str | float | int]]:
        """One row a score; NaN where there is no interval or no chance."""
        cells: list[tuple[str | float | int, ...]] = [
            (s.name, s.value, s.low, s.high, s.n, math.nan if s.chance is None else s.chance)
            for s in self.scores
        ]
        return [dict(zip(_ROW, row, strict=True)) for row in cells]

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame, one row a score."""
        return data_frame(self.rows())

    def _title(self) -> str:
        part = "" if self.split == "all" else f" ({self.split})"
        return f"{self.task} of {self.model} on {self.dataset}{part}"


class HeardBefore(TypedDict):
    """How much of a data set a model was trained on; `n` is None where nobody knows."""

    trained_on: list[str] | None
    n: int | None
    of: int
    note: str
    """One sentence for people; empty where nothing was heard before."""
