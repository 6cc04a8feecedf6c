"""One cell of a protocol: a variant, a fold, a set of stages and a rate; kept when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.in_encoder import scores_of
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.protocols.protocol_recipe import ProtocolRecipe, Stages
from residual_audio.adaptation.protocols.protocol_training import restore, train
from residual_audio.files import write_npz
from residual_audio.judge.answers import Judge
from residual_audio.metrics.classification import true_rank
from residual_audio.metrics.spectra import pca_dimension
from residual_audio.reweight.axes import chosen_units
from residual_audio.reweight.gains import identity_gains, n_gains
from residual_audio.reweight.network import NetworkGains
from residual_audio.types import FloatArray, Gains, Spectrum


@dataclass(frozen=True)
class Cell:
    """What one fit gave."""

    hits: dict[int, FloatArray]
    """Epoch → [test clip] right or wrong; 0 stands for the epoch that the rule chose."""
    epochs: int
    held_out_loss: float
    parameters: int
    capped: bool

    def write(self, path: Path) -> None:
        about = [self.epochs, self.held_out_loss, self.parameters, self.capped]
        arrays = {f"hits_{epoch}": hits for epoch, hits in self.hits.items()}
        write_npz(path, {"about": np.array(about, np.float64), **arrays})

    @classmethod
    def read(cls, path: Path) -> Cell:
        with np.load(path) as found:
            epochs, loss, parameters, capped = found["about"].tolist()
            hits = {int(k[5:]): found[k] for k in found.files if k.startswith("hits_")}
        return cls(hits, int(epochs), loss, int(parameters), bool(capped))


@dataclass(frozen=True)
class Bench:
    """A problem under a recipe: its judge, and the bases of one fold."""

    problem: Problem
    recipe: ProtocolRecipe
    judge: Judge
    split: Split
    basis: NDArray[np.int64]
    """Clips that the basis is found on."""
    fit: NDArray[np.int64]
    """Clips that λ is trained on."""
    spectra: dict[str, Spectrum]
    """Of every unit of the level, over the clips of the basis."""

    def start(self, stages: Stages) -> NetworkGains:
        """λ where training begins."""
        units = [u.name for u in chosen_units(self.problem.sites, self.recipe.level, stages)]
        spectra = {name: self.spectra[name] for name in units}  # all of them: no rank is capped
        about = {"fold": self.split.name}
        given = identity_gains(spectra, keep_mean=self.recipe.keep_mean, fitted_on=about)
        if self.recipe.variance is not None:
            given = _cut(given, self.recipe.variance)
        return NetworkGains(given, self.problem.sites)

    def key(self, stages: Stages, rate: float, marks: Sequence[int]) -> str:
        """Names a cell: weights, clips, what is done, and on which fold."""
        ids = [(clip.id, clip.label) for clip in self.problem.clips]
        parts = (self.fit, self.basis, self.split.held_out, self.split.test)
        said = repr((self.problem.about["model"], ids, self.recipe, stages, rate, tuple(marks)))
        said += repr([part.tolist() for part in parts])
        return blake2b(said.encode(), digest_size=12).hexdigest()

    def cell(self, stages: Stages, rate: float, marks: Sequence[int], kept: Path) -> Cell:
        """Fitted, or read back where it was fitted before."""
        path = kept / f"{self.key(stages, rate, marks)}.npz"
        if not path.is_file():
            self._fitted(stages, rate, marks).write(path)
        return Cell.read(path)

    def _fitted(self, stages: Stages, rate: float, marks: Sequence[int]) -> Cell:
        gains, streams = self.start(stages), self.problem.encoder
        # from the features on, where all of the encoder runs anyway: they are smaller than states
        embed = streams.embed(gains) if gains.first_block else streams.embed_whole(gains)
        how = replace(self.recipe.training, learning_rate=rate)
        if marks:
            how = replace(how, epochs=max(*marks, how.epochs))
        parameters = list(gains.parameters())
        with torch.enable_grad():
            found = train(
                embed,
                parameters,
                self.judge,
                self.fit,
                self.split.held_out,
                how,
                marks if how.stop == "last epoch" else (),
                self.split.seed,
            )
        hits = {0: self._hits(scores_of(self.problem, self.split.test, embed))}
        for epoch, state in found.marks.items():
            restore(parameters, state)
            hits[epoch] = self._hits(scores_of(self.problem, self.split.test, embed))
        n = n_gains(gains.gains())
        return Cell(hits, found.epochs, found.held_out_loss, n, found.capped)

    def _hits(self, scores: FloatArray) -> FloatArray:
        return (true_rank(scores, self.problem.codes[self.split.test]) == 1).astype(np.float64)


def _cut(gains: Gains, variance: float) -> Gains:
    """λ = 0 beyond the components that hold this share of the variance."""
    values = {}
    for unit, own in gains.gains.items():
        k = int(pca_dimension(np.asarray(gains.spectra[unit].eigenvalues), variance))
        values[unit] = np.where(np.arange(len(own)) < k, 1.0, 0.0)
    return replace(gains, gains=values)
