"""Losses. Vectors are unit length, logits are cosines times the learned scale."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def multi_positive(logits: Tensor, positive: Tensor, ignore: Tensor | None = None) -> Tensor:
    """−Σ_j w_ij log softmax_j, w = positive / Σ positive; rows without a positive do not count.

    `ignore` marks pairs that are neither positive nor negative: they leave the denominator. With
    one positive a row and nothing ignored this is InfoNCE.
    """
    if ignore is not None:
        logits = logits.masked_fill(ignore & (positive <= 0), float("-inf"))
    total = positive.sum(1)
    weights = positive / total.clamp(min=1e-8)[:, None]
    log_p = F.log_softmax(logits, dim=1)
    rows = -(weights * log_p.masked_fill(positive <= 0, 0.0)).sum(1)
    counts = (total > 0).to(rows.dtype)
    return (rows * counts).sum() / counts.sum().clamp(min=1)


def symmetric_contrastive(
    audio: Tensor,
    text: Tensor,
    scale: Tensor,
    positive: Tensor,
    ignore: Tensor | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """Mean of audio → text and text → audio: audio [n, d], text [m, d], positive [n, m] ≥ 0."""
    logits = scale * audio @ text.T
    to_text = multi_positive(logits, positive, ignore)
    to_audio = multi_positive(logits.T, positive.T, None if ignore is None else ignore.T)
    loss = (to_text + to_audio) / 2
    if smoothing:
        even = -F.log_softmax(logits, dim=1).mean()
        loss = (1 - smoothing) * loss + smoothing * even
    return loss


def cosine_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """1 − cos, averaged over rows."""
    return 1 - F.cosine_similarity(student, teacher, dim=-1).mean()


def relational(student: Tensor, teacher: Tensor, temperature: float = 0.1) -> Tensor:
    """KL between the two sides' softmax similarities to the other rows of the batch."""
    off = ~torch.eye(len(student), dtype=torch.bool, device=student.device)
    a = (F.normalize(student, dim=-1) @ F.normalize(student, dim=-1).T / temperature)[off]
    b = (F.normalize(teacher, dim=-1) @ F.normalize(teacher, dim=-1).T / temperature)[off]
    n = len(student)
    log_p, log_q = F.log_softmax(a.view(n, n - 1), 1), F.log_softmax(b.view(n, n - 1), 1)
    return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)


def masked_mean(values: Tensor, known: Tensor) -> Tensor:
    """Mean over the rows that are known; 0 where none is."""
    weights = known.to(values.dtype)
    return (values * weights).sum() / weights.sum().clamp(min=1)


def exchanged(audio: Tensor, text: Tensor, scale: Tensor, told_apart: Tensor) -> Tensor:
    """−log of choosing the own caption over the exchanged one, and the own clip likewise.

    audio [item, 2, d], text [item, 2, k, d]; `told_apart` [item, k] is False where both clips of an
    item have the same caption and there is nothing to choose. With s_ij = cos(text i, audio j) it
    is the mean of log(1 + e^(wrong − right)) over s00 > s10, s11 > s01, s00 > s01 and s11 > s10:
    what F and G ask for.
    """
    s = scale * torch.einsum("itkd,iad->ikta", text, audio)
    right = s.diagonal(dim1=2, dim2=3)  # item k side
    wrong = torch.stack([s[..., 1, 0], s[..., 0, 1]], -1)  # the other caption of each clip
    rows = F.softplus(wrong - right) + F.softplus(wrong.flip(-1) - right)
    return masked_mean(rows.mean(-1).flatten() / 2, told_apart.flatten())


def spread(vectors: Tensor, sharpness: float = 2.0) -> Tensor:
    """log mean e^(−2 |a − b|²) over pairs of vectors: low where they fill the sphere evenly."""
    return torch.pdist(vectors).square().mul(-sharpness).exp().mean().log()


def centroid(vectors: Tensor) -> Tensor:
    """Squared length of the mean vector: 0 where nothing is common to all."""
    return vectors.mean(0).square().sum()


class _AtMost(torch.autograd.Function):
    """min(x, most). The gradient of a plain clamp is 0 beyond the limit, so a value that has got
    there can never come back; this one lets through the part that leads back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, most: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.most = most
        return x.clamp(max=most)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        (gradient,) = gradients
        # descent goes against the gradient: a negative one would lead further out
        return torch.where((x > ctx.most) & (gradient < 0), 0.0, gradient), None


def at_most(x: Tensor, most: float) -> Tensor:
    """min(x, most) with a gradient that leads back from beyond the limit."""
    return _AtMost.apply(x, most)  # type: ignore[no-any-return, no-untyped-call]
