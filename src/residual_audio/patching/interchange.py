"""Exchanging targets between clips, pair after pair, keeping what is done."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from residual_audio.errors import InputError
from residual_audio.files import write_npz
from residual_audio.models.token_times import Range
from residual_audio.patching.attribution import run_attribution
from residual_audio.patching.exchanges import Exchanges
from residual_audio.patching.held import MeasuredExchanges
from residual_audio.patching.measures import digest_of
from residual_audio.patching.outcomes import MIN_GAP, Interchanged
from residual_audio.patching.rerun import run_exact
from residual_audio.patching.straight import run_direct
from residual_audio.patching.targets import Target, parse_targets
from residual_audio.progress import SILENT, Progress
from residual_audio.types import UnitLike

Method = Literal["exact", "attribution"]
METHODS: tuple[Method, ...] = get_args(Method)
Route = Literal["total", "direct"]
PATHS: tuple[Route, ...] = get_args(Route)
Run = Callable[[Exchanges, Sequence[int], Sequence[int], Sequence[Target]], MeasuredExchanges]
"""(exchanges, numbers of some, rows of their clips, targets) → what was measured."""
RUNS: dict[tuple[Method, Route], Run] = {
    ("exact", "total"): run_exact,
    ("attribution", "total"): run_attribution,
    ("exact", "direct"): run_direct,
}


@dataclass(frozen=True)
class ExchangeWay:
    """How targets are exchanged."""

    method: Method = "exact"
    path: Route = "total"
    """`total`: through everything after; `direct`: only what the target itself adds."""
    between: Range | None = None
    """Only at the tokens of this time range, in seconds."""
    batch_size: int = 4
    """Clips in one pass (exact: of the pass that is kept)."""
    min_gap: float = MIN_GAP

    def __post_init__(self) -> None:
        if (self.method, self.path) not in RUNS:
            known = ", ".join(f"{method} with {path}" for method, path in RUNS)
            raise InputError(f"'{self.method}' with path '{self.path}' is not there: use {known}")


WAY = ExchangeWay()


def interchange(
    given: Exchanges,
    units: UnitLike | Sequence[UnitLike] | Sequence[Target],
    way: ExchangeWay = WAY,
    *,
    keep: Path | None = None,
    progress: Progress = SILENT,
) -> Interchanged:
    """Every target exchanged in every pair.

    With `keep` (a folder), what is done is kept there as it is done, and not done again by a call
    with the same model, clips, targets and way.
    """
    targets = _targets(given, units, way)
    parts = _Parts(keep, given, targets, way) if keep is not None else None
    n = len(given)
    clean, corrupt = np.full(n, np.nan), np.full(n, np.nan)
    patched = np.full((len(targets), n), np.nan)
    start = time.perf_counter()
    progress.step(f"{len(targets)} exchanges a pair, {way.method}, {way.path}", n, "exchanges")
    if keep is not None:
        progress.keeps("finished pairs are kept; the same command goes on")
    for numbers, rows in given.together(way.batch_size if way.method != "exact" else 2):
        found = parts.read(numbers) if parts is not None else None
        if found is None:
            run = RUNS[way.method, way.path](given, numbers, rows, targets)
            found = [part.cpu().double().numpy() for part in (run.clean, run.corrupt, run.patched)]
            if parts is not None:
                parts.write(numbers, found)
        clean[numbers], corrupt[numbers], patched[:, numbers] = found
        progress.advance(len(numbers))
    return Interchanged(
        targets,
        tuple(item.pair for item in given.items),
        tuple(given.groups),
        clean,
        corrupt,
        patched,
        way.method,
        way.path,
        given.measured_by,
        time.perf_counter() - start,
        way.min_gap,
    )


def _targets(
    given: Exchanges, units: UnitLike | Sequence[UnitLike] | Sequence[Target], way: ExchangeWay
) -> tuple[Target, ...]:
    if isinstance(units, Sequence) and units and isinstance(units[0], Target):
        found: tuple[Target, ...] = tuple(units)  # type: ignore[arg-type]
    else:
        found = parse_targets(units, given.model.encoder.sites)  # type: ignore[arg-type]
    return found if way.between is None else tuple(t.at(way.between) for t in found)


class _Parts:
    """What is done of one interchange: one small file a batch, under a name that says what of."""

    def __init__(
        self, folder: Path, given: Exchanges, targets: Sequence[Target], way: ExchangeWay
    ) -> None:
        if not given.model.sha256:
            raise InputError("this model has an edit that cannot be told from others: keep nothing")
        asked = {
            "model": given.model.sha256,
            "measure": given.measured_by,
            "clips": [_digest(given, row) for row in range(len(given.features))],
            "items": [(i.pair, i.clean, i.corrupt, digest_of(i.measure)) for i in given.items],
            "targets": [
                (t.name, sorted(map(str, t.unit.heads | t.unit.sites)), t.stream, t.between)
                for t in targets
            ],
            "way": [way.method, way.path],
        }
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        self._folder = folder / digest[:16]

    def _file(self, numbers: Sequence[int]) -> Path:
        return self._folder / f"exchanges-{numbers[0]:06d}-{numbers[-1]:06d}.npz"

    def read(self, numbers: Sequence[int]) -> list[np.ndarray] | None:
        file = self._file(numbers)
        if not file.is_file():
            return None
        with np.load(file) as kept:
            return [kept[name] for name in ("clean", "corrupt", "patched")]

    def write(self, numbers: Sequence[int], found: Sequence[np.ndarray]) -> None:
        names = ("clean", "corrupt", "patched")
        write_npz(self._file(numbers), dict(zip(names, found, strict=True)))


def _digest(given: Exchanges, row: int) -> str:
    features = given.features.take([row])
    whole = features[0] if isinstance(features, tuple) else features
    return hashlib.sha256(whole.float().cpu().numpy().tobytes()).hexdigest()[:16]
