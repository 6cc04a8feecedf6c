"""What an adapted model makes of clips that it was not adapted on: of any run of the same model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from residual_audio.adaptation.methods.choice import unit_length
from residual_audio.adaptation.methods.in_encoder import joint_of
from residual_audio.adaptation.problem import Problem
from residual_audio.reweight.cached import Adapter
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.terms import terms_of
from residual_audio.types import FloatArray, Gains

Embedding = Callable[[Problem, np.ndarray], FloatArray]
"""A problem and clip numbers → joint embeddings [clip, d]."""


def by_gains(gains: Gains) -> Embedding:
    """Gains of either path."""

    @torch.no_grad()
    def embed(problem: Problem, rows: np.ndarray) -> FloatArray:
        if gains.path == "network":
            return by_adapter(NetworkGains(gains, problem.sites))(problem, rows)
        terms = terms_of(problem.direct, gains).at(rows)
        return problem.from_latent(terms.latent(terms.vector(gains))).numpy()

    return embed


def by_adapter(adapter: Adapter) -> Embedding:
    """What edits the forward pass."""
    return lambda problem, rows: joint_of(rows, problem.encoder.embed(adapter)).numpy()


def by_map(change: FloatArray, amount: float = 1.0) -> Embedding:
    """What is added to unit embeddings: x + `amount` · x `change`."""

    def embed(problem: Problem, rows: np.ndarray) -> FloatArray:
        unit = unit_length(problem.joint[rows])
        return unit + amount * (unit @ change)

    return embed
