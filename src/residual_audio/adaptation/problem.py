"""One adaptation problem: labelled clips, what the model made of them, how they are divided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.data.splits import (
    Folds,
    few_shot,
    grouped_split,
    official_or_grouped_folds,
)
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_module import joint_head
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.judge.of_store import class_judge, clips_of
from residual_audio.models.joint import JointHead
from residual_audio.reweight.gains import width_of
from residual_audio.reweight.spectra import Components, direct_spectra
from residual_audio.types import Clip, FloatArray, Head, Site, Spectrum


@dataclass(frozen=True)
class Split:
    """Clip numbers of one fold. `fit` and `held_out` together are the training part."""

    name: str
    fit: np.ndarray
    held_out: np.ndarray
    """Chooses epochs and hyper-parameters; empty where there are too few clips to spare any."""
    test: np.ndarray

    @property
    def train(self) -> np.ndarray:
        return np.sort(np.concatenate([self.fit, self.held_out]))


class PooledHeads(Protocol):
    """The part of a store with the pooled vectors of units, as network gains meet them."""

    def heads(self, site: Site) -> Any: ...

    def array(self, name: str) -> Any: ...


@dataclass(frozen=True)
class Problem:
    """What every method of the comparison may use; only training clips, and no test label."""

    clips: tuple[Clip, ...]
    classes: tuple[str, ...]
    judge: Judge
    head: JointHead
    latent: FloatArray
    """[clip, D]"""
    joint: FloatArray
    """[clip, d], not normalised."""
    contributions: Contributions | None = None
    pooled: PooledHeads | None = None
    sites: tuple[Site, ...] = ()
    ensemble: FloatArray | None = None
    """[class, d] of a prompt ensemble."""
    about: dict[str, Any] = field(default_factory=dict)
    _spectra: dict[tuple[bytes, str], Spectrum] = field(default_factory=dict, repr=False)
    _one_at_a_time: Lock = field(default_factory=Lock, repr=False)

    def __len__(self) -> int:
        return len(self.clips)

    @cached_property
    def codes(self) -> np.ndarray:
        """[clip], class numbers."""
        return self.judge.positive.float().argmax(1).numpy()

    @cached_property
    def groups(self) -> list[str]:
        return [clip.group or clip.id for clip in self.clips]

    @property
    def direct(self) -> Contributions:
        if self.contributions is None:
            raise InputError(
                "this store has no direct path: extract again with --capture …,direct, or fit "
                "with --path network"
            )
        return self.contributions

    def from_latent(self, latent: Tensor) -> Tensor:
        return self.head.from_latent(latent)

    def scores(self, joint: Tensor | FloatArray, texts: FloatArray | None = None) -> FloatArray:
        """Cosines with the class texts [clip, class]."""
        unit = F.normalize(torch.as_tensor(joint, dtype=torch.float32), dim=-1)
        against = self.judge.texts if texts is None else torch.as_tensor(texts, dtype=torch.float32)
        return (unit @ F.normalize(against, dim=-1).T).detach().numpy().astype(np.float64)

    def spectra(
        self, units: Sequence[str], rows: np.ndarray, components: Components
    ) -> dict[str, Spectrum]:
        """Direct-path spectra over these clips, cut to as many gains as the unit has dimensions."""
        key = np.asarray(rows).tobytes()
        with self._one_at_a_time:  # methods side by side want the same spectra
            missing = [u for u in units if (key, u) not in self._spectra]
            self._spectra.update(
                {(key, u): s for u, s in direct_spectra(self.direct, missing, rows).items()}
            )
        found = {}
        for unit in units:
            full = self._spectra[key, unit]
            limit = width_of(unit, self.sites, self.latent.shape[1])
            wanted = Components(
                min(components.k or limit, limit), components.evr, components.coarse
            )
            kept = wanted.of(full)
            if components.coarse or len(kept.basis):
                found[unit] = kept
        if not found:
            raise InputError("every unit is constant over these clips: nothing to reweight")
        return found

    def vectors(self, unit: str) -> FloatArray:
        """[clip, d] pooled over tokens, in the space that network gains of a unit act in."""
        if self.pooled is None:
            raise InputError("the pooled heads of this problem are not at hand")
        if unit == "output":
            return self.latent
        if ".h" in unit:
            head = Head.parse(unit)
            site = next(s for s in self.sites if head in s.heads)
            return np.asarray(self.pooled.heads(site))[:, head.head]
        if "." in unit:
            stage_block, kind = unit.rsplit(".", 1)
            return np.asarray(self.pooled.array(f"blocks/{stage_block}/{kind}"))
        sites = [s for s in self.sites if f"s{s.stage}" == unit and s.kind == "attention"]
        parts = [
            np.asarray(self.pooled.array(f"blocks/s{s.stage}.b{s.block}/attention")) for s in sites
        ]
        return np.concatenate(parts)  # every block's clips share one basis

    def forget(self) -> None:
        """Drop the spectra of finished folds."""
        self._spectra.clear()


def problem_of(
    store: Any, rows: np.ndarray | None = None, ensemble: FloatArray | None = None
) -> Problem:
    """The adaptation problem of a store with labels, or of some of its clips."""
    keep: Any = slice(None) if rows is None else rows
    judge = class_judge(store)
    clips = clips_of(store)
    chosen = clips if rows is None else tuple(clips[i] for i in rows)
    present = {clip.label for clip in chosen}
    if len(present) < 2:
        raise InputError(f"all clips are of one class ({present.pop()}): nothing to tell apart")
    return Problem(
        clips=chosen,
        classes=store.classes,
        judge=Judge(judge.texts, judge.positive[keep], judge.scale),
        head=joint_head(store),
        latent=np.array(store.latent()[keep], np.float32),
        joint=np.array(store.embedding(unit=False)[keep], np.float32),
        contributions=Contributions(store, keep, dtype=np.float32)
        if "direct" in store.kinds
        else None,
        pooled=_Rows(store, keep),
        sites=store.sites,
        ensemble=ensemble,
        about={"model": asdict(store.model_info), "dataset": asdict(store.dataset_info)},
    )


class _Rows:
    """A store's pooled vectors, of the chosen clips."""

    def __init__(self, store: Any, rows: Any) -> None:
        self._store, self._rows = store, rows

    def heads(self, site: Site) -> Any:
        return np.asarray(self._store.heads(site))[self._rows]

    def array(self, name: str) -> Any:
        return np.asarray(self._store.array(name))[self._rows]


@dataclass(frozen=True)
class _Numbered:
    """Clips of a store with their fold numbers, as the division into folds wants them."""

    clips: Sequence[Clip]
    folds: dict[int, str]


def folds_of(clips: Sequence[Clip], n_folds: int = 5, seed: int = 0) -> Folds:
    """Official folds where every clip has one and there are several, else grouped ones."""
    numbers = sorted({clip.fold for clip in clips if clip.fold is not None})
    stand_in: Any = _Numbered(clips, {n: str(n) for n in numbers})
    return official_or_grouped_folds(stand_in, n_folds, seed)


def splits_of(
    problem: Problem,
    folds: Folds,
    *,
    seed: int = 0,
    held_out: float = 0.2,
    shots: int | None = None,
    only: Callable[[str], bool] | None = None,
    allow_missing: bool = False,
) -> Iterator[Split]:
    """Fold by fold: test part, and a training part with whole groups held out for choices.

    With `shots`, the training part is that many clips a class; with fewer than four there is
    nothing to spare for choices, and defaults are used. A class that the training part lacks (its
    clips are all of one group) is an error, unless `allow_missing`: gains can do without it.
    """
    for fold, name in enumerate(folds.names):
        if only is not None and not only(name):
            continue
        train, test = folds.train(fold), folds.test(fold)
        if shots is not None:
            part = [problem.clips[i] for i in train]
            train = train[few_shot(part, shots, seed)]
        if not allow_missing:
            _check_classes(problem, train, name)
        if shots is not None and shots < 4:
            yield Split(name, train, train[:0], test)
            continue
        mask = grouped_split([problem.clips[i] for i in train], held_out, seed)
        yield Split(name, train[~mask], train[mask], test)


def _check_classes(problem: Problem, train: np.ndarray, fold: str) -> None:
    there = np.bincount(problem.codes[train], minlength=len(problem.classes))
    present = np.bincount(problem.codes, minlength=len(problem.classes)) > 0
    missing = [problem.classes[c] for c in np.flatnonzero((there == 0) & present)]
    if missing:
        raise InputError(
            f"the training part of fold '{fold}' has no clip of class '{missing[0]}'"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + ": use other folds, leave the class out, or allow it (--allow-missing)"
        )
