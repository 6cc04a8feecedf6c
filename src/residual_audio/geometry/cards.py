"""Where a model fails: text anisotropy, alignment, or audio collapse, by rule and by number.

The numbers do not depend on the scale or width of the space. Beside the probes there is a test of
what would help: the chance that a matched pair beats an unmatched one (AUC) as the model gives it,
with both clouds centred, and after a linear map between the sides fitted on other clips. If the map
brings the pairs together, both encoders knew and the alignment was at fault; if it does not, what
is needed is not in one of the clouds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError
from residual_audio.geometry.clouds import Clouds, thin
from residual_audio.metrics import cloud_shape, spectra
from residual_audio.progress import SILENT, Progress

Array = npt.NDArray[Any]

NARROW_CONE = 0.5
"""Mean cosine between different items of a side above which the side is called collapsed."""
FEW_DIRECTIONS = 0.05
"""Effective rank over min(n − 1, d) below which a side is called collapsed."""
GOOD_AUC = 0.9
"""AUC from which nothing is called a failure of alignment."""
HELPS = 0.05
"""Gain of AUC from which a fix is said to help."""


@dataclass(frozen=True)
class ModelCard:
    """One model on one data set: its numbers, and what is wrong by them."""

    model: str
    dataset: str
    numbers: dict[str, float]
    findings: tuple[tuple[str, str], ...]
    """(what, why with the numbers), the most important first; empty where nothing is wrong."""

    @property
    def verdict(self) -> str:
        return self.findings[0][0] if self.findings else "no failure found"


def diagnose(clouds: Clouds, *, seed: int = 0) -> ModelCard:
    """The card of one model."""
    if clouds.text is None or len(clouds.pairs) < 4:
        raise InputError(
            f"{clouds.model} on {clouds.dataset}: a diagnosis needs texts and at least four pairs"
        )
    numbers = {
        **_side("text", clouds.text),
        **_side("audio", clouds.audio),
        "gap_angle_deg": cloud_shape.modality_gap(clouds.audio, clouds.text).angle_deg,
        "auc": cloud_shape.pair_auc(clouds.audio, clouds.text, clouds.pairs),
        "auc_centred": _centred_auc(clouds),
        "auc_mapped": _mapped_auc(clouds, seed),
        **_bias(clouds),
    }
    return ModelCard(clouds.model, clouds.dataset, numbers, tuple(_findings(numbers)))


def _side(side: str, x: Array) -> dict[str, float]:
    limit = max(1, min(len(x) - 1, x.shape[1]))
    rank = float(spectra.effective_rank(spectra.eigenspectrum(x))[0])
    return {
        f"mean_cosine_{side}": cloud_shape.mean_cosine(x),
        # a constant cloud has no spectrum: no direction at all
        f"relative_rank_{side}": rank / limit if rank == rank else 0.0,
    }


def _bias(clouds: Clouds) -> dict[str, float]:
    """Spread of each side's main effect over that of the interaction, in the similarity table.

    S = mean + audio effect + text effect + interaction. Only the interaction can tell pairs apart;
    a text that is near to every audio (a large text effect) wins whatever is played.
    """
    assert clouds.text is not None
    similarity = clouds.audio @ clouds.text.T
    rows, columns = similarity.mean(1, keepdims=True), similarity.mean(0, keepdims=True)
    spread = (similarity - rows - columns + similarity.mean()).std()
    if not spread > 0:
        return {"bias_audio": math.nan, "bias_text": math.nan}
    return {"bias_audio": float(rows.std() / spread), "bias_text": float(columns.std() / spread)}


def _centred_auc(clouds: Clouds) -> float:
    assert clouds.text is not None
    audio, text = clouds.audio - clouds.audio.mean(0), clouds.text - clouds.text.mean(0)
    return cloud_shape.pair_auc(_unit(audio), _unit(text), clouds.pairs)


def _mapped_auc(clouds: Clouds, seed: int, n_folds: int = 2) -> float:
    """AUC after a ridge map from audio to text fitted on the groups of the other fold."""
    assert clouds.text is not None
    names, member = np.unique(clouds.groups, return_inverse=True)
    if len(names) < 2 * n_folds:
        return math.nan
    fold = np.random.default_rng(seed).permutation(len(names)) % n_folds
    found = []
    for k in range(n_folds):
        held = fold[member] == k
        fit = clouds.pairs[~held[clouds.pairs[:, 0]]]
        audio, text = clouds.audio[fit[:, 0]], clouds.text[fit[:, 1]]
        offset_a, offset_t = audio.mean(0), text.mean(0)
        a, t = audio - offset_a, text - offset_t
        gram = a.T @ a
        ridge = 0.1 * np.trace(gram) / len(gram) + 1e-12
        mapping = np.linalg.solve(gram + ridge * np.eye(len(gram)), a.T @ t)
        test = clouds.part(np.flatnonzero(held), np.arange(len(clouds.text)))
        assert test.text is not None
        if len(test.pairs) == 0:
            continue
        mapped = (test.audio - offset_a) @ mapping
        found.append(cloud_shape.pair_auc(_unit(mapped), _unit(test.text - offset_t), test.pairs))
    return float(np.mean(found)) if found else math.nan


def _unit(x: Array) -> Array:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def _findings(numbers: dict[str, float]) -> list[tuple[str, str]]:
    found: list[tuple[float, str, str]] = []
    for side, name in (("text", "text anisotropy"), ("audio", "audio collapse")):
        cosine, rank = numbers[f"mean_cosine_{side}"], numbers[f"relative_rank_{side}"]
        excess = max(cosine / NARROW_CONE, FEW_DIRECTIONS / max(rank, 1e-6))
        if excess > 1:
            why = (
                f"{side} vectors have a mean cosine of {cosine:.2f} (above {NARROW_CONE} is a "
                f"narrow cone) and use {rank:.0%} of the directions they could (below "
                f"{FEW_DIRECTIONS:.0%} is few)"
            )
            found.append((excess, name, why))
    auc, centred, mapped = numbers["auc"], numbers["auc_centred"], numbers["auc_mapped"]
    if auc < GOOD_AUC:
        best = max((v for v in (centred, mapped) if v == v), default=auc)
        if best - auc >= HELPS:
            by = "centring both clouds" if centred >= best - 1e-12 else "a linear map"
            why = (
                f"matched pairs beat unmatched ones with probability {auc:.2f}; {by} raises it to "
                f"{best:.2f}, so both sides know more than their alignment shows "
                f"(angle between the centroids {numbers['gap_angle_deg']:.0f}°)"
            )
        else:
            why = (
                f"matched pairs beat unmatched ones with probability {auc:.2f}, and neither "
                f"centring ({centred:.2f}) nor a linear map ({mapped:.2f}) helps: the encoders "
                "themselves do not tell these items apart"
            )
        found.append(((GOOD_AUC - auc) / (GOOD_AUC - 0.5) * 2, "alignment", why))
    return [(name, why) for _, name, why in sorted(found, key=lambda f: -f[0])]


def compare(
    clouds: Sequence[Clouds], *, seed: int = 0, progress: Progress = SILENT
) -> list[ModelCard]:
    """One card a model, taken at the same number of items."""
    if not clouds:
        raise InputError("there is no model to compare")
    n_audio = min(len(c.audio) for c in clouds)
    n_text = min(len(c.text) if c.text is not None else 0 for c in clouds)
    progress.step("cards", len(clouds), "models")
    cards = []
    for one in clouds:
        small = len(one.audio) == n_audio and one.text is not None and len(one.text) == n_text
        cards.append(diagnose(one if small else thin(one, n_audio, n_text, seed), seed=seed))
        progress.advance()
    return cards
