"""Fréchet audio distance and its companions between two sides, on the vectors of any model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from residual_audio import provenance
from residual_audio.embeddings.embedder import JointEmbedder
from residual_audio.errors import InputError
from residual_audio.generation.sound_side import SoundSide
from residual_audio.metrics import frechet
from residual_audio.types import Result, Score

FEWEST_FILES = 4
"""Of a side, for a line through distances of its parts."""


@dataclass(frozen=True)
class DistanceComparison:
    """What `compare_sides` finds, with the line behind FAD∞ for a plot."""

    result: Result
    extrapolated: frechet.Extrapolated | None


def compare_sides(
    reference: SoundSide,
    evaluated: SoundSide,
    model: JointEmbedder,
    *,
    infinity: bool = True,
    seed: int = 0,
) -> DistanceComparison:
    """FAD, FAD∞, kernel distance and the score of every evaluated file."""
    if evaluated.vectors is None:
        raise InputError("the evaluated side must be a folder of sound, not statistics")
    d = len(reference.gaussian.mean)
    n_eval = evaluated.gaussian.n
    warnings = _warnings(reference, evaluated, d)
    fad = frechet.frechet_distance(reference.gaussian, evaluated.gaussian)
    scores = [Score("fad", fad, math.nan, math.nan, n_eval, None)]
    extrapolated = None
    if infinity:
        extrapolated, notes = _extrapolate(reference, evaluated, seed)
        warnings += notes
    if extrapolated is not None:
        half = 1.96 * extrapolated.standard_error
        value = extrapolated.value
        scores.append(Score("fad_infinity", value, value - half, value + half, n_eval, None))
    try:
        scores += _kernel(reference, evaluated)
    except InputError as error:  # a constant reference has a mean, but no kernel width
        warnings.append(f"no mmd: {error}")
    files = frechet.file_distances(reference.gaussian, evaluated.vectors, evaluated.files)
    names = list(files)
    # the root is a distance and far less skewed than its square
    flags = frechet.outliers(np.sqrt([files[name] for name in names]))
    result = Result(
        task="fad",
        model=provenance.model_label(model),
        dataset=evaluated.name,
        split=f"against {reference.name}",
        scores=tuple(scores),
        per_item={
            "file": names,
            "distance": [files[name] for name in names],
            "windows": [evaluated.files.count(name) for name in names],
            "outlier": flags.tolist(),
        },
        details={
            "reference": reference.name, "n_reference": reference.gaussian.n,
            "n_evaluated": n_eval, "n_files": len(names), "dimension": d,
            "outliers": [name for name, flag in zip(names, flags, strict=True) if flag],
            "skipped": {**reference.skipped, **evaluated.skipped},
            "warnings": warnings,
        },
        provenance=provenance.collect(model=model, seed=seed),
    )  # fmt: skip
    return DistanceComparison(result, extrapolated)


def _extrapolate(
    reference: SoundSide, evaluated: SoundSide, seed: int
) -> tuple[frechet.Extrapolated | None, list[str]]:
    """FAD∞ where there are files enough, and what a reader must know about it."""
    sides = [evaluated] if reference.vectors is None else [evaluated, reference]
    enough = min(side.n_files for side in sides)
    if enough < FEWEST_FILES or evaluated.vectors is None:
        return None, [f"FAD∞ needs at least four files on each side, there are {enough}"]
    left = reference.gaussian if reference.vectors is None else reference.vectors
    found = frechet.frechet_infinity(
        left, evaluated.vectors, x_groups=reference.files or None, y_groups=evaluated.files,
        seed=seed,
    )  # fmt: skip
    if found.both_sides:
        return found, []
    return found, [
        "the reference is given as statistics: FAD∞ removes the bias of the evaluated side, that "
        "of the reference remains"
    ]


def _kernel(reference: SoundSide, evaluated: SoundSide) -> list[Score]:
    """Kernel distance, where both sides have vectors of two files or more."""
    if reference.vectors is None or evaluated.vectors is None:
        return []
    if min(reference.n_files, evaluated.n_files) < 2:
        return []
    found = frechet.kernel_distance(
        reference.vectors, evaluated.vectors, x_groups=reference.files, y_groups=evaluated.files
    )
    half = 1.96 * found.standard_error
    value = found.value
    return [Score("mmd", value, value - half, value + half, evaluated.gaussian.n, None)]


def _warnings(reference: SoundSide, evaluated: SoundSide, d: int) -> list[str]:
    found = []
    for side in (reference, evaluated):
        n = side.gaussian.n
        if n == 0:
            found.append(f"'{side.name}' does not say how many vectors it was made of")
        elif n < 2 * d:
            found.append(
                f"'{side.name}' has {n} windows for {d} dimensions (below 2d = {2 * d}): FAD is "
                "mostly bias at this size, and FAD∞ cannot remove all of it; look at mmd"
            )
    return found
