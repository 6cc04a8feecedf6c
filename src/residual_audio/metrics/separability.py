"""How much a head knows about classes: Fisher ratio, activation by class, linear probe, silhouette.

Conventions: x is [head, clip, d]; `codes` [clip] are integers 0 … n_classes − 1. Folds are integers
[clip]; a probe is always tested on folds it was not fitted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.validate import Array, as_heads


def class_codes(labels: Sequence[str] | Array) -> tuple[tuple[str, ...], Array]:
    """Sorted class names, and the code of each clip."""
    names, codes = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    return tuple(str(name) for name in names), codes.astype(np.int64)


def _one_hot(codes: Array) -> Array:
    codes = np.asarray(codes)
    return np.eye(int(codes.max()) + 1)[codes]


def _check(x: Array, codes: Array) -> Array:
    x = as_heads(x)
    if np.shape(codes) != (x.shape[1],):
        raise InputError(f"{np.size(codes)} class codes were given for {x.shape[1]} clips")
    if len(np.unique(codes)) < 2:
        raise InputError("separability needs at least two classes")
    return x


def fisher(x: Array, codes: Array, kind: Literal["trace", "mean_ratio"] = "trace") -> Array:
    """Fisher discriminability: [head].

    trace: tr S_B / tr S_W, with S_B = Σ_c n_c (m_c − m)(m_c − m)ᵀ, S_W the scatter within classes.
    mean_ratio: the mean over dimensions of S_B,jj / S_W,jj; changes under rotation.
    NaN for a constant head, infinity where classes do not vary at all.
    """
    if kind not in ("trace", "mean_ratio"):
        raise InputError(f"kind '{kind}' is not one of: trace, mean_ratio")
    x = _check(x, codes)
    y = _one_hot(codes)
    counts = y.sum(0)
    out = np.empty(len(x))
    for h, raw in enumerate(x):
        z = raw.astype(np.float64)
        z = z - z.mean(0)
        z -= z.mean(0)  # the mean itself was rounded
        means = (y.T @ z) / np.maximum(counts, 1)[:, None]  # class, d
        between = (counts[:, None] * means**2).sum(0)
        within = ((z - means[codes]) ** 2).sum(0)
        rounding = len(z) * (np.finfo(raw.dtype).eps * np.abs(raw).max(axis=0).astype(float)) ** 2
        between = np.where(between <= rounding, 0.0, between)
        within = np.where(within <= rounding, 0.0, within)
        with np.errstate(divide="ignore", invalid="ignore"):
            if kind == "trace":
                out[h] = between.sum() / within.sum()
            else:
                ratio = between / within
                out[h] = ratio[~np.isnan(ratio)].mean() if (~np.isnan(ratio)).any() else np.nan
    return out


def class_activation(x: Array, codes: Array, centre: bool = False) -> Array:
    """Mean norm of a head's output over the clips of each class: [head, class].

    centre: measure from the head's mean over all clips, so that a large constant output does not
    hide what the classes change.
    """
    x = _check(x, codes)
    y = _one_hot(codes)
    norms = np.empty(x.shape[:2])
    for h, raw in enumerate(x):
        z = raw.astype(np.float64)
        norms[h] = np.linalg.norm(z - z.mean(0) if centre else z, axis=1)
    return norms @ y / np.maximum(y.sum(0), 1)


def selectivity(activation: Array) -> tuple[Array, Array]:
    """(a_max − ā_others) / (a_max + ā_others) and the preferred class, of [head, class]."""
    n_classes = activation.shape[-1]
    best = activation.argmax(-1)
    top = np.take_along_axis(activation, best[..., None], -1)[..., 0]
    others = (activation.sum(-1) - top) / max(n_classes - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (top - others) / (top + others), best


@dataclass(frozen=True)
class ProbeScores:
    """Accuracy of a linear probe on held-out folds."""

    accuracy: Array
    """[head], over all clips."""
    correct: Array
    """[head, clip] bool."""
    chance: float
    """Share of the most common class: what a probe that sees nothing can reach."""


def linear_probe(x: Array, codes: Array, folds: Array, ridge: float = 1e-3) -> ProbeScores:
    """Ridge regression onto one-hot classes in closed form, one fold held out at a time.

    W = (S + λ I)⁻¹ C with S, C the centred scatter of the training clips and
    λ = ridge · tr S / d, so that the scale of a head does not matter.
    """
    x = _check(x, codes)
    folds = np.asarray(folds)
    names = np.unique(folds)
    if len(names) < 2:
        raise InputError("a probe needs at least two folds: one to fit on, one to test on")
    y = _one_hot(codes)
    correct = np.zeros(x.shape[:2], dtype=bool)
    for h, raw in enumerate(x):
        z = raw.astype(np.float64)
        for fold in names:
            train = folds != fold
            mean, target = z[train].mean(0), y[train].mean(0)
            a = z[train] - mean
            scatter = a.T @ a
            scale = np.trace(scatter) / len(scatter)
            if scale > 0:
                scatter[np.diag_indices_from(scatter)] += ridge * scale
                weights = np.linalg.solve(scatter, a.T @ (y[train] - target))
                scores = (z[~train] - mean) @ weights + target
            else:
                scores = np.broadcast_to(target, (int((~train).sum()), len(target)))
            correct[h, ~train] = scores.argmax(1) == codes[~train]
    return ProbeScores(correct.mean(1), correct, float(y.mean(0).max()))


def silhouette(x: Array, codes: Array) -> Array:
    """Mean over clips of (b − a) / max(a, b): [head], Euclidean.

    a is the mean distance to the other clips of the same class, b to those of the nearest other
    class. A clip alone in its class counts 0.
    """
    x = _check(x, codes)
    y = _one_hot(codes)
    counts = y.sum(0)
    present = counts > 0
    own = counts[codes]
    out = np.empty(len(x))
    for h, raw in enumerate(x):
        z = raw.astype(np.float64)
        z = z - z.mean(0)
        norms = (z * z).sum(1)
        total = 0.0
        for start in range(0, len(z), 512):
            rows = slice(start, start + 512)
            squared = norms[rows, None] + norms[None] - 2 * (z[rows] @ z.T)
            squared[np.arange(len(squared)), np.arange(start, start + len(squared))] = 0.0
            sums = np.sqrt(np.clip(squared, 0.0, None)) @ y  # clip, class
            mine = codes[rows]
            a = sums[np.arange(len(mine)), mine] / np.maximum(own[rows] - 1, 1)
            means = np.where(present, sums / np.maximum(counts, 1), np.inf)
            means[np.arange(len(mine)), mine] = np.inf
            b = means.min(1)
            with np.errstate(invalid="ignore"):
                score = (b - a) / np.maximum(a, b)
            total += np.where(own[rows] > 1, np.nan_to_num(score), 0.0).sum()
        out[h] = total / len(z) if norms.sum() > 0 else np.nan
    return out


@dataclass(frozen=True)
class LabelledUnits:
    """Units whose clips have classes, with what several estimates share worked out once."""

    x: Array
    """[unit, clip, d]"""
    codes: Array
    """[clip], class of each clip."""
    folds: Array | None = None
    """[clip]; None where the clips cannot be divided for a probe."""
    sample: Array | None = None
    """Clips that silhouettes are measured on, whose time grows as n²; None for all."""
    groups: Array | None = None
    """[clip], what shares a recording; None where every clip is its own."""

    @cached_property
    def probe(self) -> ProbeScores | None:
        return None if self.folds is None else linear_probe(self.x, self.codes, self.folds)


def probe_accuracy(units: LabelledUnits) -> Array | None:
    """Held-out accuracy of a linear probe of each unit alone; None without folds."""
    return None if units.probe is None else units.probe.accuracy


def probe_control(units: LabelledUnits) -> Array | None:
    """Held-out accuracy on a control task: whole groups of clips with classes drawn at random.

    What a probe of this width reaches on labels that no sound explains; what lies above it is what
    the head knows. The classes keep their shares; clips of one group get one class.
    """
    if units.folds is None:
        return None
    rng = np.random.default_rng(0)
    groups = np.arange(len(units.codes)) if units.groups is None else units.groups
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    drawn = rng.permutation(units.codes[first])[member]
    if len(np.unique(drawn)) < 2:
        return None
    return linear_probe(units.x, class_codes(drawn.astype(str))[1], units.folds).accuracy


def sampled_silhouette(units: LabelledUnits) -> Array | None:
    """Silhouette over the sampled clips; None where they are of one class."""
    chosen = slice(None) if units.sample is None else units.sample
    codes = units.codes[chosen]
    return silhouette(units.x[:, chosen], codes) if len(np.unique(codes)) > 1 else None


def fisher_trace(units: LabelledUnits) -> Array:
    """tr S_B / tr S_W."""
    return fisher(units.x, units.codes)


def fisher_mean_ratio(units: LabelledUnits) -> Array:
    """Mean of S_B / S_W over dimensions."""
    return fisher(units.x, units.codes, "mean_ratio")
