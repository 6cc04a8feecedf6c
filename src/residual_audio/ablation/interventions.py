"""What interventions work on, and one method of removal applied to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from residual_audio.ablation.direct_effects import direct_ablation
from residual_audio.ablation.effects import Effects
from residual_audio.ablation.exact import exact_ablation
from residual_audio.ablation.first_order import DIFFERENTIABLE, first_order_ablation
from residual_audio.ablation.removal import Mode, Replacement, reference_means
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_module import joint_head
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.judge.of_store import caption_judge, label_judge
from residual_audio.models.joint import JointHead
from residual_audio.passes.kept import Passes
from residual_audio.progress import SILENT, Progress
from residual_audio.store import Store
from residual_audio.store.by_clip import owners_of
from residual_audio.types import UnitLike

Method = Literal["direct", "first-order", "exact"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True)
class Interventions:
    """A store, the clips of it that are used, and (for all but `direct`) the model to run."""

    store: Store
    rows: np.ndarray
    judge: Judge
    passes: Passes | None = None
    """Features of exactly the clips `rows`."""

    @property
    def groups(self) -> list[str]:
        table = self.store.clips
        return [table["group"][i] or table["id"][i] for i in self.rows]

    @cached_property
    def owners(self) -> npt.NDArray[np.int64]:
        """The clip that each row is of, counted from 0: rows may be windows of one."""
        return owners_of(self.store.clips.where(self.rows))

    def of_clips(self, rows: Sequence[str]) -> list[str]:
        """What is said of every row, once a clip."""
        return [rows[i] for i in np.unique(self.owners, return_index=True)[1]]

    @property
    def labels(self) -> list[str] | None:
        found = [self.store.clips["label"][i] for i in self.rows]
        return None if any(label is None for label in found) else found

    @cached_property
    def contributions(self) -> Contributions:
        return Contributions(self.store, self.rows, dtype=np.float32)

    @cached_property
    def head(self) -> JointHead:
        return joint_head(self.store)

    def need_passes(self) -> Passes:
        if self.passes is None:
            raise InputError("this method runs the encoder: it needs the model and the data set")
        return self.passes


def interventions_on(
    store: Store,
    rows: np.ndarray | None = None,
    by: Literal["labels", "captions"] = "labels",
    passes: Passes | None = None,
) -> Interventions:
    """Answers by class (`labels`: prompts, or centroids where there is no text) or by captions."""
    chosen = np.arange(len(store)) if rows is None else np.asarray(rows)
    judge = label_judge(store) if by == "labels" else caption_judge(store)
    return Interventions(store, chosen, judge.at(chosen), passes)


@dataclass(frozen=True)
class Way:
    """How units are taken out."""

    method: Method = "direct"
    mode: Mode = "zero"
    batch_size: int = 8
    seed: int = 0


def take_out(
    given: Interventions,
    units: Sequence[UnitLike],
    way: Way,
    progress: Progress = SILENT,
) -> Effects:
    """Effects of removing each unit, on the clips of these interventions."""
    if way.method == "direct":
        found = direct_ablation(
            given.contributions,
            given.head.from_latent,
            given.judge,
            units,
            mode=way.mode,
            seed=way.seed,
        )
        progress.advance(len(given.rows))  # all clips at once
        return found
    passes, size = given.need_passes(), way.batch_size
    means = reference_means(passes.model, passes.batches(size=size)) if way.mode == "mean" else None
    instead = Replacement(way.mode, means)
    batches = passes.batches(size=size, seed=way.seed if way.mode == "resample" else None)
    if way.method == "exact":
        return exact_ablation(passes.model, batches, given.judge, units, instead, progress=progress)
    return first_order_ablation(
        passes.model,
        batches,
        given.judge,
        units,
        instead,
        measures=DIFFERENTIABLE,
        progress=progress,
    )
