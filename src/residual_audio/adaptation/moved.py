"""What the gains say: which components moved, what they are about, which clips they touch."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from residual_audio.adaptation.problem import Problem
from residual_audio.direct.joint_module import joint_of_module
from residual_audio.reweight.terms import terms_of
from residual_audio.types import FloatArray, Gains


def moved_components(
    problem: Problem,
    gains: Gains,
    texts: list[str],
    text_vectors: FloatArray | None,
    *,
    top: int = 20,
    n_texts: int = 3,
    n_clips: int = 3,
) -> list[dict[str, object]]:
    """The components whose change moves the latents most, with words and clips at both ends.

    A component's words are the texts of the store nearest to where a step along it leads in the
    joint space (the joint head linearised at the mean latent); its clips are those furthest along.
    Direct-path gains only: their components live in the latent.
    """
    terms = terms_of(problem.direct, gains)
    values = terms.vector(gains).numpy()
    k = terms.axes.shape[0]
    amplitudes, axes = terms.amplitudes.numpy(), terms.axes.numpy()
    energy = ((values[:k] - 1.0) * amplitudes.std(0)) ** 2
    owner = np.repeat(np.arange(len(terms.sizes)), terms.sizes)
    start = np.concatenate([[0], np.cumsum(terms.sizes)])
    step = joint_of_module(problem.head).derivative(problem.latent.mean(0)[None])
    named = None
    if text_vectors is not None:
        named = text_vectors - text_vectors.mean(0)
    rows = []
    for j in np.argsort(-energy)[:top]:
        row: dict[str, Any] = {
            "unit": terms.units[owner[j]],
            "component": int(j - start[owner[j]]),
            "gain": float(values[j]),
            "energy": float(energy[j]),
        }
        for side, sign in (("positive", 1.0), ("negative", -1.0)):
            if named is not None:
                along = sign * (named @ (axes[j] @ step))
                nearest = np.argsort(-along)[:n_texts]
                row[f"{side}_texts"] = " | ".join(texts[i] for i in nearest)
            order = np.argsort(-sign * amplitudes[:, j])[:n_clips]
            row[f"{side}_clips"] = " | ".join(problem.clips[i].id for i in order)
            row[f"{side}_labels"] = " | ".join(str(problem.clips[i].label) for i in order)
        rows.append(row)
    return rows


class UnitGains(TypedDict):
    """The gains of one unit in a few numbers."""

    unit: str
    mean_gain: float
    std_gain: float
    min_gain: float
    max_gain: float
    moved: float
    gain_of_mean: float


def moved_units(gains: Gains) -> list[UnitGains]:
    """Every unit: mean gain, spread of gains, smallest and largest."""
    rows: list[UnitGains] = []
    for unit, values in gains.gains.items():
        values = np.asarray(values, np.float64)
        rows.append(
            {
                "unit": unit,
                "mean_gain": float(values.mean()),
                "std_gain": float(values.std()),
                "min_gain": float(values.min()),
                "max_gain": float(values.max()),
                "moved": float(np.abs(values - 1).mean()),
                "gain_of_mean": float(gains.means.get(unit, 1.0)),
            }
        )
    return rows
