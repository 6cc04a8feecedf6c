"""Symbolic music: two folders of pieces side by side."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.generation.midi import Pieces
from residual_audio.metrics import symbolic as metrics
from residual_audio.metrics import uncertainty
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

    Pieces are resampled, independently on both sides.
    """
    left, right = _describe(reference, segment_beats), _describe(generated, segment_beats)
    rng = np.random.default_rng(seed)
    draw = [
        rng.integers(0, len(p.notes), (n_resamples, len(p.notes))) for p in (reference, generated)
    ]
    histograms = (_histograms(reference), _histograms(generated))
    scores = _divergences(histograms, rng, n_resamples, smoothing, len(generated.notes))
    scores += [_difference(name, left[name], right[name], draw) for name in left]
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


def _divergences(
    histograms: tuple[Array, Array],
    rng: np.random.Generator,
    n_resamples: int,
    smoothing: float,
    n: int,
) -> list[Score]:
    kinds: dict[str, Callable[[Array, Array], float]] = {
        "pitch_class_kl": lambda p, q: metrics.kl_divergence(p, q, smoothing),
        "pitch_class_kl_any_key": lambda p, q: metrics.kl_divergence_any_key(p, q, smoothing),
        "tonal_distance": metrics.tonal_distance,
    }
    if min(len(h) for h in histograms) == 0:  # notes of no duration only
        return [Score(name, math.nan, math.nan, math.nan, n) for name in kinds]
    means = [h[rng.integers(0, len(h), (n_resamples, len(h)))].mean(1) for h in histograms]
    found = []
    for name, kind in kinds.items():
        value = kind(histograms[0].mean(0), histograms[1].mean(0))
        low = high = math.nan
        if min(len(h) for h in histograms) > 1:
            drawn = [kind(p, q) for p, q in zip(*means, strict=True)]
            low, high = np.quantile(drawn, [0.025, 0.975])
        found.append(Score(name, value, float(low), float(high), n))
    return found


def _difference(name: str, left: Array, right: Array, draw: Sequence[Array]) -> Score:
    """Generated − reference mean; pieces for which the descriptor means nothing are left out."""
    n = int(np.isfinite(right).sum())
    if not (np.isfinite(left).any() and np.isfinite(right).any()):
        return Score(f"{name}_difference", math.nan, math.nan, math.nan, n)
    value = float(np.nanmean(right) - np.nanmean(left))
    if min(np.isfinite(left).sum(), np.isfinite(right).sum()) < 2:
        return Score(f"{name}_difference", value, math.nan, math.nan, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a resample may hold NaN only
        drawn = np.nanmean(right[draw[1]], axis=1) - np.nanmean(left[draw[0]], axis=1)
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Score(f"{name}_difference", value, float(low), float(high), n)


def _mean(values: Array, seed: int) -> dict[str, float]:
    if not np.isfinite(values).any():
        return {"mean": math.nan, "low": math.nan, "high": math.nan}
    low, high = uncertainty.mean_interval(values, seed=seed, shares=False)
    return {"mean": float(np.nanmean(values)), "low": low, "high": high}
