"""A published protocol from beginning to end: both variants, every fold and set, tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from residual_audio.adaptation.divisions import Division, Split, folds_of, splits_of
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.protocols.linear_column import linear_hits, n_linear
from residual_audio.adaptation.protocols.protocol_cells import Bench, Cell
from residual_audio.adaptation.protocols.protocol_recipe import (
    ProtocolRecipe,
    PublishedProtocol,
    Stages,
)
from residual_audio.adaptation.protocols.token_basis import token_spectra
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.metrics.classification import true_rank
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.axes import chosen_units
from residual_audio.types import FloatArray

BASELINE, LINEAR, CHOSEN, BEST = "baseline", "linear", "chosen", "best"


@dataclass
class ProtocolColumn:
    """One column of a protocol's table: right or wrong, clip by clip."""

    variant: str
    name: str
    """baseline, linear, a set of stages, `chosen`, or `best` (of a sweep, on the tested folds)."""
    hits: FloatArray
    """[clip], each where it was tested"""
    parameters: int = 0
    capped: int = 0
    """Folds whose best epoch was the last one allowed."""
    chosen: list[str] = field(default_factory=list)
    """What was chosen, fold by fold."""


class CellRow(TypedDict):
    """One fit, or one mark of it, on one fold."""

    variant: str
    stages: str
    rate: float
    epochs: int
    fold: str
    accuracy: float
    n: int
    held_out_loss: float


@dataclass(frozen=True)
class ProtocolFound:
    """All columns of both variants, and every cell."""

    columns: list[ProtocolColumn]
    cells: list[CellRow]
    folds: dict[str, Folds]
    """By variant."""


def run_protocol(
    problem: Problem,
    protocol: PublishedProtocol,
    kept: Path,
    *,
    n_folds: int = 5,
    sweep: bool = False,
    progress: Progress = SILENT,
) -> ProtocolFound:
    """Every cell that is not there yet, then the tables; `kept` holds finished cells."""
    sets = protocol.sets_for(problem.stages)
    if not sets:
        raise InputError(f"this encoder has none of the stages that '{protocol.name}' speaks of")
    _check_size(problem, protocol, n_folds)
    progress.keeps(f"finished cells are kept in {kept}, the same command goes on after them")
    rates = protocol.sweep_rates if sweep else ()
    found = ProtocolFound([], [], {})
    for recipe in protocol.recipes():
        folds = _folds(problem, recipe, n_folds, protocol.seed)
        found.folds[recipe.variant] = folds
        judge = _judge(problem, recipe)
        grid = [
            (stages, rate) for stages in sets for rate in rates or (recipe.training.learning_rate,)
        ]
        marks = protocol.sweep_epochs if sweep else ()
        table = _Grid(problem, folds, recipe, judge, grid, marks)
        table.fill(kept, progress)
        found.columns.extend(table.columns())
        found.cells.extend(table.rows())
    return found


def _check_size(problem: Problem, protocol: PublishedProtocol, n_folds: int) -> None:
    """Whether every fold has clips to choose by, before hours of work."""
    folds = _folds(problem, protocol.corrected, n_folds, protocol.seed)
    for split in splits_of(problem, folds, Division(allow_missing=True)):
        if not len(split.held_out):
            raise InputError(
                f"{len(problem)} clips leave none in fold '{split.name}' to be held out for "
                "choices: give more clips"
            )


def _folds(problem: Problem, recipe: ProtocolRecipe, n_folds: int, seed: int) -> Folds:
    if not recipe.torn_groups:
        return folds_of(problem.clips, n_folds, seed)
    rng = np.random.default_rng(seed)
    assignment = np.empty(len(problem), np.int64)
    for code in range(len(problem.classes)):  # class by class, dealt out after shuffling
        mine = rng.permutation(np.flatnonzero(problem.codes == code))
        assignment[mine] = (np.arange(len(mine)) + code) % n_folds
    names = tuple(str(i + 1) for i in range(n_folds))
    return Folds(assignment, names, f"clip by clip, {n_folds} folds, seed {seed}: groups are torn")


def _judge(problem: Problem, recipe: ProtocolRecipe) -> Judge:
    """The recipe's prompt and temperature."""
    model = problem.encoder.passes.model
    prompts = [recipe.prompt.replace("{}", name) for name in problem.classes]
    scale = problem.judge.scale if recipe.own_temperature else 1.0
    labels = [clip.label for clip in problem.clips]
    return Judge.for_labels(labels, problem.classes, model.embed_text(prompts), scale)


@dataclass
class _Grid:
    """All cells of one variant."""

    problem: Problem
    folds: Folds
    recipe: ProtocolRecipe
    judge: Judge
    grid: Sequence[tuple[Stages, float]]
    marks: Sequence[int]
    cells: dict[tuple[int, Stages, float], Cell] = field(default_factory=dict)
    linear: FloatArray | None = None

    def _splits(self) -> Iterator[Split]:
        # a class that is missing from training is no hindrance to gains
        return splits_of(self.asked, self.folds, Division(allow_missing=True))

    @property
    def asked(self) -> Problem:
        """The problem with the recipe's texts, which scores are taken against."""
        return replace(self.problem, judge=self.judge)

    def fill(self, kept: Path, progress: Progress) -> None:
        problem = self.asked
        if self.recipe.linear:
            self.linear = np.full(len(problem), np.nan)
        for fold, split in enumerate(self._splits()):
            progress.step(f"{self.recipe.variant}, fold {split.name}", len(self.grid), "cells")
            bench = self._bench(problem, split)
            for stages, rate in self.grid:
                self.cells[fold, stages, rate] = bench.cell(stages, rate, self.marks, kept)
                progress.advance()
            if self.linear is not None:
                self.linear[split.test] = linear_hits(problem, split, self.recipe)

    def _bench(self, problem: Problem, split: Split) -> Bench:
        """The parts of a fold, and the bases of all units over its training part."""
        chooses = self.recipe.training.stop == "held-out loss"
        fit = split.fit if chooses else split.train
        basis = split.train
        if self.recipe.basis_clips is not None:
            # at least half is left for λ where clips are few
            n = min(self.recipe.basis_clips, len(fit) // 2)
            drawn = np.random.default_rng(split.seed).permutation(fit)
            basis, fit = np.sort(drawn[:n]), np.sort(drawn[n:])
        units = chosen_units(problem.sites, self.recipe.level)
        spectra = token_spectra(problem.encoder.passes, basis, units)
        return Bench(problem, self.recipe, self.judge, split, basis, fit, spectra)

    def _pooled(self, picked: Sequence[tuple[Stages, float, int]]) -> FloatArray:
        """[clip] with one cell (and epoch) a fold."""
        out = np.full(len(self.problem), np.nan)
        for fold, (stages, rate, epoch) in enumerate(picked):
            out[self.folds.test(fold)] = self.cells[fold, stages, rate].hits[epoch]
        return out

    def _all_folds(self, stages: Stages, rate: float, epoch: int = 0) -> FloatArray:
        return self._pooled([(stages, rate, epoch)] * len(self.folds))

    def columns(self) -> Iterator[ProtocolColumn]:
        variant, problem = self.recipe.variant, self.asked
        scores = problem.scores(problem.joint)
        base = (true_rank(scores, problem.codes) == 1).astype(np.float64)
        yield ProtocolColumn(variant, BASELINE, base)
        plain = self.recipe.training.learning_rate
        for stages in dict.fromkeys(stages for stages, _ in self.grid):
            mine = [self.cells[f, stages, plain] for f in range(len(self.folds))]
            n, capped = max(c.parameters for c in mine), sum(c.capped for c in mine)
            epoch = self.recipe.training.epochs if self.marks and self._by_marks else 0
            yield ProtocolColumn(
                variant, name_of(stages), self._all_folds(stages, plain, epoch), n, capped
            )
        yield self._chosen() if not self._by_marks else self._best()
        if self.linear is not None:
            yield ProtocolColumn(variant, LINEAR, self.linear, n_linear(problem))

    @property
    def _by_marks(self) -> bool:
        return self.recipe.training.stop != "held-out loss"

    def _chosen(self) -> ProtocolColumn:
        """In every fold what its held-out clips chose."""
        picked, said = [], []
        for fold in range(len(self.folds)):
            losses = [self.cells[fold, s, r].held_out_loss for s, r in self.grid]
            stages, rate = self.grid[int(np.argmin(losses))]
            picked.append((stages, rate, 0))
            said.append(f"{name_of(stages)} at {rate:g}")
        n = max(self.cells[f, s, r].parameters for f, (s, r, _) in enumerate(picked))
        capped = sum(self.cells[f, s, r].capped for f, (s, r, _) in enumerate(picked))
        return ProtocolColumn(self.recipe.variant, CHOSEN, self._pooled(picked), n, capped, said)

    def _best(self) -> ProtocolColumn:
        """What scores best on the very clips that it is reported on."""
        epochs = list(self.marks) or [0]
        tried = [(s, r, e) for s, r in self.grid for e in epochs]
        best = max(tried, key=lambda one: float(self._all_folds(*one).mean()))
        stages, rate, epoch = best
        said = f"{name_of(stages)} at {rate:g}" + (f", {epoch} epochs" if epoch else "")
        n = self.cells[0, stages, rate].parameters
        return ProtocolColumn(self.recipe.variant, BEST, self._all_folds(*best), n, chosen=[said])

    def rows(self) -> Iterator[CellRow]:
        for (fold, stages, rate), cell in self.cells.items():
            for epoch, hits in cell.hits.items():
                if self.marks and self._by_marks and epoch == 0:
                    continue  # the last of the marks
                yield {
                    "variant": self.recipe.variant,
                    "stages": name_of(stages),
                    "rate": rate,
                    "epochs": epoch or cell.epochs,
                    "fold": self.folds.names[fold],
                    "accuracy": float(hits.mean()),
                    "n": len(hits),
                    "held_out_loss": cell.held_out_loss,
                }


def name_of(stages: Stages) -> str:
    """As the publications write a set: `[2,3]`."""
    return "[" + ",".join(map(str, stages)) + "]"
