"""One adaptation problem: labelled clips, and what the model made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.data.splits import Folds
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_module import joint_head
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.judge.centroids import best_scale, class_centroids
from residual_audio.judge.of_store import class_judge, clips_of
from residual_audio.models.joint import JointHead
from residual_audio.passes.kept import Passes
from residual_audio.reweight.axes import Components, attention_of, direct_spectra
from residual_audio.reweight.cached import Streams
from residual_audio.reweight.terms import DirectTerms, direct_terms
from residual_audio.store import Store
from residual_audio.types import (
    Clip,
    FloatArray,
    Head,
    Site,
    Spectrum,
    Unit,
    UnitLike,
    attention_site,
    parse_unit,
)

KEPT_BYTES = 1 << 29
"""Spectra of finished folds stay while they take no more: what comes after may ask for them."""


class PooledVectors(Protocol):
    """Vectors of units pooled over tokens, as gains inside the network meet them."""

    def head(self, head: Head, site: Site) -> FloatArray:
        """[clip, d_head]"""

    def site(self, site: Site) -> FloatArray:
        """[clip, width]"""


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
    pooled: PooledVectors | None = None
    sites: tuple[Site, ...] = ()
    ensemble: FloatArray | None = None
    """[class, d] of a prompt ensemble."""
    streams: Streams | None = None
    """The model and its clips, for methods that run the encoder."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Model and data set, as a store records them."""
    objective: str = "cross-entropy"
    """What is learnt where a method does not say; captions of one's own are told apart within a
    batch, so that those of test clips are never looked at."""
    by_centroids: bool = False
    """The model has no text side: classes are centroids of training clips (see `on`), and there
    are none before a split has said which clips those are."""
    _spectra: dict[tuple[bytes, str], Spectrum] = field(default_factory=dict, repr=False)
    _terms: dict[tuple[bytes, tuple[Unit, ...]], DirectTerms] = field(
        default_factory=dict, repr=False
    )
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
    def stages(self) -> list[int]:
        return sorted({site.stage for site in self.sites})

    @property
    def direct(self) -> Contributions:
        if self.contributions is None:
            raise InputError(
                "this store has no direct path: extract again with --capture …,direct, or fit "
                "with --path network"
            )
        return self.contributions

    @property
    def encoder(self) -> Streams:
        if self.streams is None:
            raise InputError(
                "this method runs the encoder: it needs the model and the data set, not the store "
                "alone (compare with --network, fit with --path network)"
            )
        return self.streams

    def from_latent(self, latent: Tensor) -> Tensor:
        return self.head.from_latent(latent)

    def scores(self, joint: Tensor | FloatArray, texts: FloatArray | None = None) -> FloatArray:
        """Cosines with the class texts [clip, class]."""
        unit = F.normalize(torch.as_tensor(joint, dtype=torch.float32), dim=-1)
        against = self.judge.texts if texts is None else torch.as_tensor(texts, dtype=torch.float32)
        return (unit @ F.normalize(against, dim=-1).T).detach().numpy().astype(np.float64)

    def on(self, fit: np.ndarray, held_out: np.ndarray | None = None) -> Problem:
        """As a split sees it: without a text side, classes become centroids of the clips `fit`.

        Held-out clips are in no centroid, so that choices by them are honest, and set the
        temperature; a class of which only they have clips is made of those.
        """
        if not self.by_centroids:
            return self
        others = fit[:0] if held_out is None else held_out
        seen = {int(code) for code in self.codes[fit]}
        lent = [int(i) for i in others if int(self.codes[i]) not in seen]
        unit = F.normalize(torch.from_numpy(self.joint), dim=-1)
        rows = np.sort(np.concatenate([fit, np.array(lent, fit.dtype)]))
        texts = class_centroids(unit, self.codes, self.classes, rows)
        judged = torch.from_numpy(others if len(others) else fit)
        scale = best_scale(unit[judged] @ texts.T, self.judge.positive[judged])
        return replace(self, judge=Judge(texts, self.judge.positive, scale))

    def scores_on(self, folds: Folds, joint: FloatArray) -> FloatArray:
        """Cosines of all clips [clip, class], each with classes as its own fold may know them."""
        if not self.by_centroids:
            return self.scores(joint)
        found = np.empty((len(self), len(self.classes)))
        for fold in range(len(folds)):
            test = folds.test(fold)
            found[test] = self.on(folds.train(fold)).scores(joint[test])
        return found

    def spectra(
        self, units: Sequence[Unit], rows: np.ndarray, components: Components
    ) -> dict[str, Spectrum]:
        """Direct-path spectra over these clips, cut to as many gains as the unit has dimensions."""
        key = np.asarray(rows).tobytes()
        with self._one_at_a_time:  # methods side by side want the same spectra
            missing = [unit for unit in units if (key, unit.name) not in self._spectra]
            made = direct_spectra(self.direct, missing, rows, to_be_cut=True)
            self._spectra.update({(key, name): spectrum for name, spectrum in made.items()})
        found = {}
        for unit in units:
            limit = unit.width or self.latent.shape[1]
            wanted = Components(
                min(components.k or limit, limit), components.evr, components.coarse
            )
            kept = wanted.of(self._spectra[key, unit.name])
            if components.coarse or len(kept.basis):
                found[unit.name] = kept
        if not found:
            raise InputError("every unit is constant over these clips: nothing to reweight")
        return found

    def terms(self, units: Sequence[Unit], rows: np.ndarray) -> DirectTerms:
        """All clips along the principal axes of these clips, with no gains of means."""
        spectra = self.spectra(units, rows, Components())
        key = np.asarray(rows).tobytes(), tuple(units)
        with self._one_at_a_time:
            if key not in self._terms:
                self._terms[key] = direct_terms(self.direct, spectra)
            return self._terms[key]

    def vectors(self, unit: UnitLike) -> FloatArray:
        """Pooled over tokens, in the space that network gains of a unit act in.

        [clip, d]; of a stage [block, clip, d], as the blocks of it share one basis.
        """
        if self.pooled is None:
            raise InputError("the pooled heads of this problem are not at hand")
        unit = parse_unit(unit, self.sites)
        if unit.kind == "output":
            return self.latent
        if unit.kind == "head":
            (head,) = unit.heads
            return self.pooled.head(head, attention_site(head, self.sites))
        if unit.kind == "stage":
            return np.stack([self.pooled.site(s) for s in attention_of(unit, self.sites)])
        (site,) = unit.sites
        return self.pooled.site(site)

    def forget(self) -> None:
        """Drop what finished folds made, spectra only where they take much room."""
        self._terms.clear()
        if sum(spectrum.basis.nbytes for spectrum in self._spectra.values()) > KEPT_BYTES:
            self._spectra.clear()


def problem_of(
    store: Store,
    rows: np.ndarray | None = None,
    *,
    ensemble: FloatArray | None = None,
    passes: Passes | None = None,
) -> Problem:
    """The adaptation problem of a store with labels, or of some of its clips."""
    keep: Any = slice(None) if rows is None else rows
    clips = clips_of(store)
    chosen = clips if rows is None else tuple(clips[i] for i in rows)
    present = {clip.label for clip in chosen}
    if len(present) < 2:
        raise InputError(f"all clips are of one class ({present.pop()}): nothing to tell apart")
    by_centroids = store.class_embeddings() is None
    if by_centroids:
        classes = tuple(name for name in store.classes if name in present)
        judge = _without_texts([clip.label for clip in chosen], classes, store.embedding().shape[1])
    else:
        classes, whole = store.classes, class_judge(store)
        judge = Judge(whole.texts, whole.positive[keep], whole.scale)
    return Problem(
        clips=chosen,
        classes=classes,
        judge=judge,
        by_centroids=by_centroids,
        head=joint_head(store),
        latent=np.array(store.latent()[keep], np.float32),
        joint=np.array(store.embedding(unit=False)[keep], np.float32),
        contributions=Contributions(store, keep, dtype=np.float32)
        if "direct" in store.kinds
        else None,
        pooled=StoredVectors(store, keep),
        sites=store.sites,
        ensemble=ensemble,
        streams=None if passes is None else Streams(passes),
        about={"model": asdict(store.model_info), "dataset": asdict(store.dataset_info)},
    )


def _without_texts(labels: Sequence[str | None], classes: Sequence[str], width: int) -> Judge:
    """Class vectors of 0, by which every answer is a tie, that is, wrong: `Problem.on` makes real
    ones of the clips that a split may look at."""
    return Judge.for_labels(labels, classes, np.zeros((len(classes), width)), 1.0)


@dataclass(frozen=True)
class StoredVectors:
    """A store's pooled vectors, of the chosen clips."""

    store: Store
    rows: Any

    def head(self, head: Head, site: Site) -> FloatArray:
        return np.asarray(self.store.heads(site))[self.rows][:, head.head]

    def site(self, site: Site) -> FloatArray:
        name = f"blocks/s{site.stage}.b{site.block}/{site.kind}"
        return np.asarray(self.store.array(name))[self.rows]
