"""Descriptors of symbolic music from note arrays.

Conventions: `notes` [n, 3] with columns onset and duration in beats (quarter notes, so that tempo
does not matter) and MIDI pitch 0–127; drums are left out by the reader. Entropies are in bits.
A piece for which a descriptor means nothing (no notes, one onset) gives NaN.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError

Array = npt.NDArray[Any]
Weight = Literal["duration", "count"]

IOI_GRID = 1 / 24
"""Inter-onset intervals are rounded to 24ths of a beat: 32nds and triplets of 16ths fall on it."""
IOI_LONGEST = 4.0
"""Longer intervals, in beats, share the last bin."""
SMOOTHING = 1e-3
"""Added to every bin of both histograms before a KL divergence, so that empty bins stay finite."""
_MAJOR = (0, 2, 4, 5, 7, 9, 11)
_HARMONIC_MINOR = (0, 2, 3, 5, 7, 8, 11)  # natural minor is the major scale of another root
LAGS = {"short": (1, 3), "middle": (4, 15), "long": (16, 64)}
"""Ranges of lags, in segments, in which repetition is looked for."""


def validate(notes: Array) -> Array:
    """As float64 [n, 3], or an error that names the note."""
    notes = np.asarray(notes, dtype=np.float64)
    if notes.size == 0:
        return np.empty((0, 3))
    if notes.ndim != 2 or notes.shape[1] != 3:
        raise InputError(f"notes must be [n, 3] (onset, duration, pitch), not {notes.shape}")
    bad = ~np.isfinite(notes).all(1) | (notes[:, 1] < 0) | (notes[:, 2] < 0) | (notes[:, 2] > 127)
    if bad.any():
        i = int(np.argmax(bad))
        raise InputError(f"note {i} (onset, duration, pitch = {notes[i].tolist()}) is not a note")
    return notes


def pitch_class_histogram(notes: Array, weight: Weight = "duration") -> Array:
    """Share of each of the 12 pitch classes, by duration or by count; NaN without notes."""
    notes = validate(notes)
    weights = notes[:, 1] if weight == "duration" else np.ones(len(notes))
    sums = np.bincount(notes[:, 2].astype(int) % 12, weights=weights, minlength=12)
    return sums / sums.sum() if sums.sum() > 0 else np.full(12, np.nan)


def entropy(p: Array) -> float:
    """−Σ p log₂ p."""
    p = np.asarray(p, dtype=np.float64)
    if not np.isfinite(p).all() or p.sum() <= 0:
        return math.nan
    p = p[p > 0] / p.sum()
    return float(-(p * np.log2(p)).sum()) + 0.0  # + 0.0: no −0 in tables


def pitch_entropy(notes: Array) -> float:
    """Of the counts of the 128 pitches."""
    notes = validate(notes)
    return entropy(np.bincount(notes[:, 2].astype(int), minlength=128))


def inter_onset_intervals(notes: Array) -> Array:
    """Beats between successive different onsets, on the grid; chords count once."""
    onsets = np.unique(np.round(validate(notes)[:, 0] / IOI_GRID).astype(np.int64))
    return np.diff(onsets) * IOI_GRID


def inter_onset_entropy(notes: Array) -> float:
    """Rhythmic entropy: of the counts of inter-onset intervals; NaN with fewer than two onsets."""
    intervals = np.minimum(inter_onset_intervals(notes), IOI_LONGEST)
    return (
        entropy(np.bincount(np.round(intervals / IOI_GRID).astype(int)))
        if len(intervals)
        else math.nan
    )


def kl_divergence(p: Array, q: Array, smoothing: float = SMOOTHING) -> float:
    """Σ p log₂ (p / q), both smoothed by `smoothing` a bin and brought back to sum 1."""
    if smoothing < 0:
        raise InputError(f"smoothing {smoothing} is below 0")
    p, q = np.asarray(p, np.float64) + smoothing, np.asarray(q, np.float64) + smoothing
    if p.shape != q.shape:
        raise InputError(f"histograms of {p.shape} and {q.shape} bins do not compare")
    p, q = p / p.sum(), q / q.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(p > 0, p * np.log2(p / q), np.where(np.isnan(p), np.nan, 0)).sum())


def kl_divergence_any_key(p: Array, q: Array, smoothing: float = SMOOTHING) -> float:
    """The smallest divergence over the 12 transpositions of q: mode and colour without the key."""
    p, q = np.asarray(p, np.float64) + smoothing, np.asarray(q, np.float64) + smoothing
    if smoothing <= 0 or p.shape != (12,) or q.shape != (12,):  # empty bins need the careful way
        return min(kl_divergence(p, np.roll(q, s), 0.0) for s in range(len(q)))
    p, q = p / p.sum(), q / q.sum()
    return float(p @ np.log2(p) - (np.log2(q)[_ROLLED] @ p).max())


_ROLLED = (np.arange(12)[None] - np.arange(12)[:, None]) % 12
"""Bins of a histogram moved up by 0 … 11."""


def tonal_centroid(histogram: Array) -> Array:
    """Harte et al. 2006: the histogram on the circles of fifths, minor and major thirds → [6]."""
    l = np.arange(12)  # noqa: E741, the notation of the paper
    angles = (l * 7 * math.pi / 6, l * 3 * math.pi / 2, l * 2 * math.pi / 3)
    axes = [
        r * f(a) for r, a in zip((1.0, 1.0, 0.5), angles, strict=True) for f in (np.sin, np.cos)
    ]
    return np.stack(axes) @ np.asarray(histogram, dtype=np.float64)


def tonal_distance(p: Array, q: Array) -> float:
    """Euclidean distance of two tonal centroids."""
    return float(np.linalg.norm(tonal_centroid(p) - tonal_centroid(q)))


def scale_consistency(notes: Array, weight: Weight = "count") -> float:
    """Largest share of notes in one of the 24 major and harmonic minor scales."""
    histogram = pitch_class_histogram(notes, weight)
    if np.isnan(histogram).any():
        return math.nan
    shares = [
        histogram[(np.array(scale) + root) % 12].sum()
        for root in range(12)
        for scale in (_MAJOR, _HARMONIC_MINOR)
    ]
    return float(max(shares))


def self_similarity(notes: Array, segment_beats: float = 4.0, positions: int = 16) -> Array:
    """Cosine between segments, each seen as note onsets [pitch class × position] → [s, s].

    An empty segment is like another empty one and unlike any other.
    """
    notes = validate(notes)
    if len(notes) == 0:
        return np.empty((0, 0))
    at = notes[:, 0] - notes[:, 0].min()
    place = np.floor(at / segment_beats * positions + 1e-6).astype(int)
    segment, position = place // positions, place % positions
    grid = np.zeros((segment.max() + 1, 12, positions))
    np.add.at(grid, (segment, notes[:, 2].astype(int) % 12, position), 1.0)
    flat = grid.reshape(len(grid), -1)
    norms = np.linalg.norm(flat, axis=1)
    empty = norms == 0
    flat = flat / np.where(empty, 1.0, norms)[:, None]
    similarity = flat @ flat.T
    similarity[np.ix_(empty, empty)] = 1.0
    return similarity


def repetition(similarity: Array, at_least: float = 0.8) -> float:
    """Share of segments that come again somewhere (cosine ≥ `at_least`); NaN below two segments."""
    if len(similarity) < 2:
        return math.nan
    others = similarity - 2 * np.eye(len(similarity))
    return float((others.max(1) >= at_least).mean())


def structure(similarity: Array) -> dict[str, float]:
    """For short, middle and long lags: the best mean similarity at one lag, above the overall mean.

    A piece with a theme that returns after 8 segments stands out in `middle`; noise is near 0.
    """
    n = len(similarity)
    found = {}
    overall = similarity[np.triu_indices(n, 1)].mean() if n > 1 else math.nan
    for name, (first, last) in LAGS.items():
        # a lag that is met only once or twice says nothing about repetition
        lags = range(first, min(last, n - 3) + 1)
        at = [np.diagonal(similarity, lag).mean() for lag in lags]
        found[name] = float(max(at) - overall) if at else math.nan
    return found


def polyphony(notes: Array) -> float:
    """Mean number of notes that sound at once, where any does."""
    notes = validate(notes)
    notes = notes[notes[:, 1] > 0]
    if len(notes) == 0:
        return math.nan
    starts, ends = notes[:, 0], notes[:, 0] + notes[:, 1]
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(ends[order])
    # length of the union: each note adds what reaches beyond all before it
    before = np.concatenate([[-np.inf], reach[:-1]])
    covered = np.maximum(reach - np.maximum(starts[order], before), 0).sum()
    return float(notes[:, 1].sum() / covered)


def describe(notes: Array, segment_beats: float = 4.0) -> dict[str, float]:
    """Every scalar descriptor of one piece, by name."""
    notes = validate(notes)
    by_duration = pitch_class_histogram(notes)
    similarity = self_similarity(notes, segment_beats)
    length = (notes[:, 0] + notes[:, 1]).max() - notes[:, 0].min() if len(notes) else 0.0
    return {
        "n_notes": float(len(notes)),
        "notes_per_beat": len(notes) / length if length > 0 else math.nan,
        "polyphony": polyphony(notes),
        "pitch_range": float(np.ptp(notes[:, 2])) if len(notes) else math.nan,
        "pitch_entropy": pitch_entropy(notes),
        "pitch_class_entropy": entropy(by_duration),
        "inter_onset_entropy": inter_onset_entropy(notes),
        "scale_consistency": scale_consistency(notes),
        "repetition": repetition(similarity),
        **{f"structure_{name}": value for name, value in structure(similarity).items()},
    }
