"""Methods of the comparison that run the encoder: gains in it, low-rank updates, fine-tuning."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from residual_audio.adaptation.comparison import STAGE_SETS, name_of
from residual_audio.adaptation.methods import ALL, FEW_SHOT_EPOCHS, Fitted, Method
from residual_audio.adaptation.problem import Problem, Split
from residual_audio.models.clap import AudioTextModel
from residual_audio.passes.kept import Passes
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
class Rooms:
    """Passes with the streams entering blocks, which every fold needs again."""

    passes: Passes
    _entrances: dict[int, Entrances] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> AudioTextModel:
        return self.passes.model

    def entrances(self, block: int) -> Entrances:
        """Every clip's stream entering a block."""
        if block not in self._entrances:
            n = len(self.passes)
            found = Entrances.record(self.model, self.passes.batches(), n, block)
            self._entrances[block] = found
        return self._entrances[block]


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
def scores_of(problem: Problem, clips: np.ndarray, embed: Embed) -> Any:
    parts = torch.as_tensor(clips).split(32)
    return problem.scores(torch.cat([embed(rows) for rows in parts]))


@dataclass(frozen=True)
class NetworkResidual:
    """Gains inside the network, in the spectra of pooled vectors of the training clips."""

    rooms: Rooms
    level: str = "head"
    stages: tuple[int, ...] | None = None
    components: Components = ALL
    axes: Axes = "pca"
    keep_mean: bool = True
    mean_gains: bool = True
    settings: FitSettings = GAINS

    def start(self, problem: Problem, split: Split, seed: int) -> tuple[NetworkGains, Embed]:
        """Gains of 1 in the axes of the training clips, and the embedding under them."""
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
        given = identity_gains(
            turn(choose(spectra, self.components), self.axes, seed),
            mean_gains=self.mean_gains and self.keep_mean,
            keep_mean=self.keep_mean,
            fitted_on=problem.about | {"fold": split.name},
        )
        gains = NetworkGains(given, problem.sites)
        return gains, self.rooms.entrances(gains.first_block).embed(self.rooms.model, gains)

    def __call__(self, problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        gains, embed = self.start(problem, split, seed)
        settings = replace(self.settings, seed=seed)
        notes = _fit(problem, split, embed, list(gains.parameters()), settings)
        scores = scores_of(problem, split.test, embed)
        found = gains.gains()
        return Fitted(scores, n_gains(found), time.perf_counter() - start, found, notes)


@dataclass(frozen=True)
class LowRankUpdate:
    """LoRA on W_O with at most `budget` numbers."""

    rooms: Rooms
    budget: int
    settings: FitSettings = LOW_RANK

    def __call__(self, problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        sites, rank = rank_within(self.budget, problem.sites)
        lora = LowRank(problem.sites, sites, rank, seed)
        embed = self.rooms.entrances(lora.first_block).embed(self.rooms.model, lora)
        settings = replace(self.settings, seed=seed)
        notes = _fit(problem, split, embed, list(lora.parameters()), settings)
        scores = scores_of(problem, split.test, embed)
        n = sum(p.numel() for p in lora.parameters())
        notes |= {"rank": rank, "sites": len(sites)}
        return Fitted(scores, n, time.perf_counter() - start, notes=notes)


@dataclass(frozen=True)
class FineTuning:
    """Every parameter of the encoder, put back afterwards."""

    rooms: Rooms
    settings: FitSettings = TUNING

    def __call__(self, problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        whole = WholeEncoder(self.rooms.model.encoder)
        try:
            embed = embed_from_features(self.rooms.model, whole, self.rooms.passes.take)
            settings = replace(self.settings, seed=seed)
            notes = _fit(problem, split, embed, whole.parameters, settings)
            scores = scores_of(problem, split.test, embed)
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
    small = sum(p.numel() for p in passes.model.encoder.parameters()) < 20_000_000
    rooms = Rooms(passes)
    found = [
        Method(f"network heads {name_of(s)}", "network", NetworkResidual(rooms, "head", s))
        for s in sets
    ]
    found += [
        Method(
            "network heads {2,3}, rotated axes",
            "control",
            NetworkResidual(rooms, "head", (2, 3), axes="rotated"),
        ),
        Method(
            "network coarse {2,3}",
            "control",
            NetworkResidual(rooms, "head", (2, 3), Components(coarse=True)),
        ),
        Method("network stage 0 (Paolini)", "network", NetworkResidual(rooms, "stage", (0,))),
        Method(
            "network stage 0, mean dropped (Paolini)",
            "network",
            NetworkResidual(rooms, "stage", (0,), keep_mean=False),
        ),
        Method("network block attention", "network", NetworkResidual(rooms, "attention", every)),
        Method("LoRA, same budget", "baseline", LowRankUpdate(rooms, budget)),
        Method("LoRA, 8 × the budget", "baseline", LowRankUpdate(rooms, 8 * budget)),
    ]
    if small:
        found.append(Method("full fine-tuning", "baseline", FineTuning(rooms)))
    return [replace(method, runs_encoder=True) for method in found]
