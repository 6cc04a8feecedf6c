"""Symbolic music: MIDI files to notes, and two folders of pieces side by side."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.errors import InputError, MissingExtraError
from residual_audio.metrics import symbolic as metrics
from residual_audio.metrics import uncertainty
from residual_audio.types import Result, Score

Array = npt.NDArray[Any]

SUFFIXES = (".mid", ".midi", ".kar")
N_RESAMPLES = 1000


@dataclass(frozen=True)
class Pieces:
    """Notes of the readable files of a folder."""

    name: str
    files: tuple[str, ...]
    notes: tuple[Array, ...]
    skipped: dict[str, str]


def read_midi(path: Path) -> Array:
    """Notes [n, 3] of a file: onset and duration in beats, pitch; drums are left out."""
    try:
        import pretty_midi
    except ImportError as error:
        raise MissingExtraError("pretty_midi", "music", "Reading MIDI files") from error
    if not path.is_file():
        raise InputError(f"no MIDI file '{path}'")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tempo events outside track 0: the reader copes
            midi = pretty_midi.PrettyMIDI(str(path))
    except Exception as error:  # the parser raises whatever the damage leads to
        raise InputError(
            f"'{path}' cannot be read as MIDI: {error or type(error).__name__}"
        ) from error
    sounding = [note for part in midi.instruments if not part.is_drum for note in part.notes]
    if not sounding:
        return np.empty((0, 3))
    starts = np.array([midi.time_to_tick(note.start) for note in sounding], dtype=np.float64)
    ends = np.array([midi.time_to_tick(note.end) for note in sounding], dtype=np.float64)
    pitches = np.array([note.pitch for note in sounding], dtype=np.float64)
    rows = np.stack([starts, np.maximum(ends - starts, 0), pitches], axis=1)
    rows[:, :2] /= midi.resolution
    return rows[np.lexsort((rows[:, 2], rows[:, 0]))]


def read_folder(folder: Path, *, advance: Callable[[int], object] | None = None) -> Pieces:
    """All MIDI files below a folder; unreadable ones and ones without notes are named."""
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder of MIDI files")
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not files:
        raise InputError(f"'{folder}' holds no MIDI file ({', '.join(SUFFIXES)})")
    names, notes, skipped = [], [], {}
    for path in files:
        name = str(path.relative_to(folder))
        try:
            found = read_midi(path)
            if len(found):
                names.append(name)
                notes.append(found)
            else:
                skipped[name] = "no pitched note"
        except InputError as error:
            skipped[name] = str(error)
        if advance is not None:
            advance(1)
    if not names:
        raise InputError(
            f"none of the {len(files)} MIDI files of '{folder}' has notes; the first: "
            f"{next(iter(skipped.values()))}"
        )
    return Pieces(folder.name, tuple(names), tuple(notes), skipped)


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
    of_reference = [metrics.describe(notes, segment_beats) for notes in reference.notes]
    of_generated = [metrics.describe(notes, segment_beats) for notes in generated.notes]
    rng = np.random.default_rng(seed)
    draw = [
        rng.integers(0, len(p.notes), (n_resamples, len(p.notes))) for p in (reference, generated)
    ]
    histograms = [_histograms(reference), _histograms(generated)]
    scores = _divergences(histograms, rng, n_resamples, smoothing, len(generated.notes))
    table = []
    for name in of_reference[0]:
        left = np.array([d[name] for d in of_reference])
        right = np.array([d[name] for d in of_generated])
        scores.append(_difference(name, left, right, draw))
        table.append(
            {
                "descriptor": name,
                "reference": _mean(left, seed),
                "generated": _mean(right, seed),
                "n_reference": int(np.isfinite(left).sum()),
                "n_generated": int(np.isfinite(right).sum()),
            }
        )
    return Result(
        task="symbolic",
        model=generated.name,
        dataset=reference.name,
        split="all",
        scores=tuple(scores),
        per_item={
            "side": ["reference"] * len(reference.files) + ["generated"] * len(generated.files),
            "file": [*reference.files, *generated.files],
            **{name: [d[name] for d in [*of_reference, *of_generated]] for name in of_reference[0]},
        },
        details={
            "descriptors": table,
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


def _histograms(pieces: Pieces) -> Array:
    """One a piece, so that a long piece counts as much as a short one; none of no duration."""
    found = np.stack([metrics.pitch_class_histogram(notes) for notes in pieces.notes])
    return found[~np.isnan(found[:, 0])]


def _divergences(
    histograms: Sequence[Array],
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
    low, high = uncertainty.mean_interval(values, seed=seed)
    return {"mean": float(np.nanmean(values)), "low": low, "high": high}
