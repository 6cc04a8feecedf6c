"""Symbolic music: two folders of pieces side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from residual_audio import provenance
from residual_audio.generation.midi import Pieces
from residual_audio.metrics import symbolic as metrics
from residual_audio.metrics import uncertainty
from residual_audio.metrics.bootstrap import half_samples, spread_interval
from residual_audio.types import Result, Score

Array = npt.NDArray[Any]
N_RESAMPLES = 1000


def compare_pieces(
    reference: Pieces,
    generated: Pieces,
    *,
    smoothing: float = metrics.SMOOTHING,
    segment_beats: float = 4.0,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
) -> Result:
    """Divergences between the folders, and each descriptor's mean on both sides with intervals.

    Divergences come with that of the same pieces in two random folders (`chance`), and the share
    of such folders that are as far apart (`p` in the details).
    """
    left, right = _describe(reference, segment_beats), _describe(generated, segment_beats)
    histograms = (_histograms(reference), _histograms(generated))
    rng = np.random.default_rng(seed)
    divergences = {
        name: divergence(kind, *histograms, rng=rng, n_resamples=n_resamples)
        for name, kind in _kinds(smoothing).items()
    }
    scores = [d.score(name, len(generated.notes)) for name, d in divergences.items()]
    scores += [_difference(name, left[name], right[name]) for name in left]
    return Result(
        task="symbolic",
        model=generated.name,
        dataset=reference.name,
        split="all",
        scores=tuple(scores),
        per_item={
            "side": ["reference"] * len(reference.files) + ["generated"] * len(generated.files),
            "file": [*reference.files, *generated.files],
            **{name: [*left[name].tolist(), *right[name].tolist()] for name in left},
        },
        details={
            "descriptors": [
                {
                    "descriptor": name,
                    "reference": _mean(left[name], seed),
                    "generated": _mean(right[name], seed),
                    "n_reference": int(np.isfinite(left[name]).sum()),
                    "n_generated": int(np.isfinite(right[name]).sum()),
                }
                for name in left
            ],
            "divergence_p": _tests(divergences),
            "pitch_classes": {
                "reference": histograms[0].mean(0),
                "generated": histograms[1].mean(0),
            },
            "settings": {
                "smoothing": smoothing,
                "segment_beats": segment_beats,
                "inter_onset_grid_beats": metrics.IOI_GRID,
                "histogram_weight": "duration",
            },
            "skipped": {**reference.skipped, **generated.skipped},
        },
        provenance=provenance.collect(seed=seed, smoothing=smoothing),
    )


def _describe(pieces: Pieces, segment_beats: float) -> Mapping[str, Array]:
    """Descriptor → its value for every piece."""
    found = [metrics.describe(notes, segment_beats) for notes in pieces.notes]
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def _histograms(pieces: Pieces) -> Array:
    """One a piece, so that a long piece counts as much as a short one; none of no duration."""
    found = np.stack([metrics.pitch_class_histogram(notes) for notes in pieces.notes])
    return found[~np.isnan(found[:, 0])]


Kind = Callable[[Array, Array], float]


def _kinds(smoothing: float) -> dict[str, Kind]:
    return {
        "pitch_class_kl": lambda p, q: metrics.kl_divergence(p, q, smoothing),
        "pitch_class_kl_any_key": lambda p, q: metrics.kl_divergence_any_key(p, q, smoothing),
        "tonal_distance": metrics.tonal_distance,
    }


@dataclass(frozen=True)
class Divergence:
    """Between the mean histograms of two folders."""

    value: float
    low: float
    high: float
    null: float
    """Mean over random partings of all pieces into two folders of these sizes: what it is where
    the folders do not differ. No divergence is 0 with few pieces."""
    p: float
    """Share of partings that are as far apart."""

    def score(self, name: str, n: int) -> Score:
        """With the null as what chance gives."""
        null = None if math.isnan(self.null) else self.null
        return Score(name, self.value, self.low, self.high, n, null)


def divergence(
    kind: Kind,
    left: Array,
    right: Array,
    *,
    rng: np.random.Generator,
    n_resamples: int = N_RESAMPLES,
) -> Divergence:
    """Of histograms [piece, 12]: interval over half-samples of the pieces, null by permutation."""
    sizes = len(left), len(right)
    if min(sizes) == 0:  # notes of no duration only
        return Divergence(*[math.nan] * 5)
    value = kind(left.mean(0), right.mean(0))
    low = high = np.array(math.nan)
    if min(sizes) >= 4:
        halves = [half_samples(len(h), n_resamples, rng).astype(float) for h in (left, right)]
        means = [
            (w @ h) / w.sum(1, keepdims=True) for w, h in zip(halves, (left, right), strict=True)
        ]
        drawn = np.array([kind(p, q) for p, q in zip(*means, strict=True)])
        low, high = spread_interval(np.array(value), drawn, min(sizes))
    pooled = np.concatenate([left, right])
    order = rng.permuted(np.tile(np.arange(len(pooled)), (n_resamples, 1)), axis=1)
    parted = [(pooled[o[: sizes[0]]].mean(0), pooled[o[sizes[0] :]].mean(0)) for o in order]
    null = np.array([kind(p, q) for p, q in parted])
    p_value = (int((null >= value * (1 - 1e-9)).sum()) + 1) / (n_resamples + 1)
    if sum(sizes) < 4:  # hardly a parting that differs
        return Divergence(value, float(low), float(high), math.nan, math.nan)
    return Divergence(value, max(0.0, float(low)), float(high), float(null.mean()), p_value)


def _tests(found: Mapping[str, Divergence]) -> dict[str, dict[str, float]]:
    q = uncertainty.fdr([d.p for d in found.values()])
    return {
        name: {"p": d.p, "q": float(one)} for (name, d), one in zip(found.items(), q, strict=True)
    }


def _difference(name: str, left: Array, right: Array) -> Score:
    """Generated − reference mean with Welch's interval; pieces for which the descriptor means
    nothing are left out."""
    left, right = left[np.isfinite(left)], right[np.isfinite(right)]
    n = len(right)
    if not len(left) or not n:
        return Score(f"{name}_difference", math.nan, math.nan, math.nan, n)
    value = float(right.mean() - left.mean())
    if min(len(left), n) < 2:
        return Score(f"{name}_difference", value, math.nan, math.nan, n)
    errors = [float(x.var(ddof=1)) / len(x) for x in (left, right)]
    if sum(errors) == 0:
        return Score(f"{name}_difference", value, value, value, n)
    df = sum(errors) ** 2 / (errors[0] ** 2 / (len(left) - 1) + errors[1] ** 2 / (n - 1))
    half = float(stats.t.ppf(0.975, df)) * math.sqrt(sum(errors))
    return Score(f"{name}_difference", value, value - half, value + half, n)


def _mean(values: Array, seed: int) -> dict[str, float]:
    if not np.isfinite(values).any():
        return {"mean": math.nan, "low": math.nan, "high": math.nan}
    low, high = uncertainty.mean_interval(values, seed=seed, shares=False)
    return {"mean": float(np.nanmean(values)), "low": low, "high": high}
