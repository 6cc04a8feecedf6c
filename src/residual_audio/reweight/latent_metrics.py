"""Metrics of the latent: what a step there does to the answers, or to the embeddings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from residual_audio.judge.answers import Judge
from residual_audio.types import FloatArray

FromLatent = Callable[[Tensor], Tensor]
MANY_TEXTS = 32
DRAWS = 16


def answer_metric(latent: Tensor, from_latent: FromLatent, judge: Judge) -> FloatArray:
    """Mean Fisher information of the answers in the latent, [D, D]: ‖·‖² is twice a KL divergence.

    E over answers c of ∇ log p(c) ∇ log p(c)'; with many texts, over some drawn with a fixed seed.
    """
    point = latent.detach().requires_grad_()
    with torch.enable_grad():
        log_p = judge.logits(from_latent(point)).log_softmax(-1)
    p = log_p.detach().exp()
    n, n_texts = p.shape
    metric = torch.zeros(latent.shape[1], latent.shape[1], dtype=latent.dtype)
    if n_texts <= MANY_TEXTS:
        draws = [(torch.full((n,), c), p[:, c].sqrt()) for c in range(n_texts)]
    else:
        seeded = torch.Generator().manual_seed(0)
        drawn = torch.multinomial(p, DRAWS, replacement=True, generator=seeded)
        draws = [(drawn[:, i], torch.full((n,), DRAWS**-0.5)) for i in range(DRAWS)]
    for text, weight in draws:
        picked = log_p.gather(1, text[:, None]).sum()
        (slope,) = torch.autograd.grad(picked, point, retain_graph=True)
        weighed = slope * weight[:, None]
        metric += weighed.T @ weighed
    return (metric / n).numpy().astype(np.float64)


def embedding_metric(latent: Tensor, from_latent: FromLatent) -> FloatArray:
    """Mean of J'J of the unit embedding in the latent, [D, D]: ‖·‖² is a squared distance."""
    point = latent.detach().requires_grad_()
    with torch.enable_grad():
        unit = torch.nn.functional.normalize(from_latent(point), dim=-1)
    metric = torch.zeros(latent.shape[1], latent.shape[1], dtype=latent.dtype)
    for axis in range(unit.shape[1]):
        (slope,) = torch.autograd.grad(unit[:, axis].sum(), point, retain_graph=True)
        metric += slope.T @ slope
    return (metric / len(point)).numpy().astype(np.float64)
