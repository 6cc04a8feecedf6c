"""Methods of the comparison that run the encoder: gains in it, low-rank updates, fine-tuning."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from residual_audio.data.base import Dataset
from residual_audio.errors import InputError
from residual_audio.evaluation.adapted import STAGE_SETS, name_of
from residual_audio.evaluation.methods import ALL, FEW_SHOT_EPOCHS, Fitted, Method
from residual_audio.evaluation.problem import Problem, Split
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Features
from residual_audio.reweight.cached import Entrances, embed_from_features
from residual_audio.reweight.fit import Embed, FitSettings, fit
from residual_audio.reweight.gains import identity_gains, n_gains
from residual_audio.reweight.lora import LowRank, WholeEncoder, rank_within
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.objectives import cross_entropy
from residual_audio.reweight.spectra import (
    Axes,
    Components,
    choose,
    network_spectra,
    turn,
    unit_names,
)
from residual_audio.types import Spectrum

GAINS = FitSettings(epochs=20, learning_rate=0.03, batch_size=32, patience=4)
LOW_RANK = FitSettings(epochs=20, learning_rate=3e-3, batch_size=32, patience=4)
TUNING = FitSettings(epochs=8, learning_rate=1e-4, batch_size=32, patience=2)
FEW_SHOT_NETWORK_EPOCHS = min(FEW_SHOT_EPOCHS, 8)


@dataclass
class Passes:
    """The model and every clip of a problem, ready to be run from any block."""

    model: AudioTextModel
    features: Tensor | tuple[Tensor, Tensor]
    """Of all clips, in the order of the problem."""
    _entrances: dict[int, Entrances] = field(default_factory=dict, repr=False)

    def take(self, rows: Any) -> Features:
        if isinstance(self.features, tuple):
            return self.features[0][rows], self.features[1][rows]
        return self.features[rows]

    def __len__(self) -> int:
        return len(self.features[0] if isinstance(self.features, tuple) else self.features)

    def batches(
        self, rows: Sequence[int] | None = None, size: int = 16
    ) -> Iterator[tuple[Tensor, Features]]:
        index = torch.arange(len(self)) if rows is None else torch.as_tensor(np.asarray(rows))
        for part in index.split(size):
            yield part, self.take(part)

    def entrances(self, block: int) -> Entrances:
        """Every clip's stream entering a block; kept, as every fold needs it."""
        if block not in self._entrances:
            self._entrances[block] = Entrances.record(self.model, self.batches(), len(self), block)
        return self._entrances[block]


@torch.no_grad()
def load_passes(
    model: AudioTextModel,
    dataset: Dataset,
    ids: Sequence[str],
    progress: Callable[[int], None] | None = None,
    batch_size: int = 16,
) -> Passes:
    """Features of these clips of a data set, as extraction made them (first window of each)."""
    by_id = {clip.id: clip for clip in dataset.clips}
    missing = [i for i in ids if i not in by_id]
    if missing:
        raise InputError(
            f"'{missing[0]}' is in the store but not in data set '{dataset.name}': give the data "
            "set that the store was made from"
        )
    parts: list[Any] = []
    for start in range(0, len(ids), batch_size):
        waves = [
            model.windows(dataset.read(by_id[i], model.sample_rate_hz))[0]
            for i in ids[start : start + batch_size]
        ]
        parts.append(model.front_end(torch.from_numpy(np.stack(waves)).to(model.device)))
        if progress is not None:
            progress(len(waves))
    if isinstance(parts[0], tuple):
        return Passes(model, (torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])))
    return Passes(model, torch.cat(parts))


def _fit(
    problem: Problem,
    split: Split,
    embed: Embed,
    parameters: list[Tensor],
    settings: FitSettings,
) -> dict[str, Any]:
    """Epochs chosen on held-out clips, then fitted again on all training clips."""
    loss = cross_entropy(problem.judge)
    first = [p.detach().clone() for p in parameters]
    epochs = FEW_SHOT_NETWORK_EPOCHS
    if len(split.held_out):
        epochs = fit(embed, parameters, loss, split.fit, split.held_out, settings).best_epoch
    with torch.no_grad():
        for parameter, value in zip(parameters, first, strict=True):
            parameter.copy_(value)
    if epochs:
        fit(embed, parameters, loss, split.train, None, settings, epochs=epochs)
    return {"epochs": epochs}


@torch.no_grad()
def _scores(problem: Problem, split: Split, embed: Embed) -> Any:
    parts = torch.as_tensor(split.test).split(32)
    return problem.scores(torch.cat([embed(rows) for rows in parts]))


@dataclass(frozen=True)
class NetworkResidual:
    """Gains inside the network, in the spectra of pooled vectors of the training clips."""

    passes: Passes
    level: str = "head"
    stages: tuple[int, ...] | None = None
    components: Components = ALL
    axes: Axes = "pca"
    keep_mean: bool = True
    settings: FitSettings = GAINS

    def __call__(self, problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        units = unit_names(problem.sites, self.level, self.stages)
        rows: Any = split.train
        if self.level == "stage":  # the clips of every block of a stage, one block after another
            spectra: dict[str, Spectrum] = {}
            for unit in units:
                depth = sum(f"s{s.stage}" == unit and s.kind == "attention" for s in problem.sites)
                tiled = np.concatenate([split.train + b * len(problem) for b in range(depth)])
                spectra |= network_spectra(problem.vectors, [unit], tiled)
        else:
            spectra = network_spectra(problem.vectors, units, rows)
        spectra = turn(choose(spectra, self.components), self.axes, seed)
        about = problem.about | {"fold": split.name}
        given = identity_gains(spectra, keep_mean=self.keep_mean, fitted_on=about)
        gains = NetworkGains(given, problem.sites)
        embed = self.passes.entrances(gains.first_block).embed(self.passes.model, gains)
        settings = replace(self.settings, seed=seed)
        notes = _fit(problem, split, embed, list(gains.parameters()), settings)
        scores = _scores(problem, split, embed)
        found = gains.gains()
        return Fitted(scores, n_gains(found), time.perf_counter() - start, found, notes)


@dataclass(frozen=True)
class LowRankUpdate:
    """LoRA on W_O with at most `budget` numbers."""

    passes: Passes
    budget: int
    settings: FitSettings = LOW_RANK

    def __call__(self, problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        sites, rank = rank_within(self.budget, problem.sites)
        lora = LowRank(problem.sites, sites, rank, seed)
        embed = self.passes.entrances(lora.first_block).embed(self.passes.model, lora)
        settings = replace(self.settings, seed=seed)
        notes = _fit(problem, split, embed, list(lora.parameters()), settings)
        scores = _scores(problem, split, embed)
        n = sum(p.numel() for p in lora.parameters())
        notes |= {"rank": rank, "sites": len(sites)}
        return Fitted(scores, n, time.perf_counter() - start, notes=notes)


@dataclass(frozen=True)
class FineTuning:
    """Every parameter of the encoder, put back afterwards."""

    passes: Passes
    settings: FitSettings = TUNING

    def __call__(self, problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        whole = WholeEncoder(self.passes.model.encoder)
        try:
            embed = embed_from_features(self.passes.model, whole, self.passes.take)
            settings = replace(self.settings, seed=seed)
            notes = _fit(problem, split, embed, whole.parameters, settings)
            scores = _scores(problem, split, embed)
        finally:
            whole.restore()
        n = sum(p.numel() for p in whole.parameters)
        return Fitted(scores, n, time.perf_counter() - start, notes=notes)


def network_methods(problem: Problem, passes: Passes) -> list[Method]:
    """Everything that runs the encoder, cheapest first."""
    n_stages = 1 + max(site.stage for site in problem.sites)
    every = tuple(range(n_stages))
    sets = sorted((s for s in STAGE_SETS if max(s) < n_stages), key=lambda s: -min(s))
    budget = sum(site.n_heads * site.d_head for site in problem.sites)
    small = sum(p.numel() for p in passes.model._encoder.parameters()) < 20_000_000
    found = [
        Method(f"network heads {name_of(s)}", "network", NetworkResidual(passes, "head", s))
        for s in sets
    ]
    found += [
        Method(
            "network heads {2,3}, rotated axes",
            "control",
            NetworkResidual(passes, "head", (2, 3), axes="rotated"),
        ),
        Method(
            "network coarse {2,3}",
            "control",
            NetworkResidual(passes, "head", (2, 3), Components(coarse=True)),
        ),
        Method("network stage 0 (Paolini)", "network", NetworkResidual(passes, "stage", (0,))),
        Method(
            "network stage 0, mean dropped (Paolini)",
            "network",
            NetworkResidual(passes, "stage", (0,), keep_mean=False),
        ),
        Method("network block attention", "network", NetworkResidual(passes, "attention", every)),
        Method("LoRA, same budget", "baseline", LowRankUpdate(passes, budget)),
        Method("LoRA, 8 × the budget", "baseline", LowRankUpdate(passes, 8 * budget)),
    ]
    if small:
        found.append(Method("full fine-tuning", "baseline", FineTuning(passes)))
    return found
