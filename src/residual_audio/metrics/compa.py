"""Compositional pairs: does each caption go with its own sound when the words are the same?

Conventions: `similarity` [item, text, audio] with s_ij = cos(text i, audio j); 2 × 2 for pairs,
3 × 3 for triplets; the diagonal is right. Comparisons are strict: a tie is a failure.

    F  every audio prefers its own caption    s00 > s10 and s11 > s01    chance 1/4
    G  every caption prefers its own audio    s00 > s01 and s11 > s10    chance 1/4
    H  both                                                              chance 1/6

Chance is that of four independent similarities. Those of a close pair are not independent (one
caption is nearer to both sounds), and a model that tells nothing apart passes far less often: its
right level is how often it is wrong throughout, `exchanged`.

The one-sided variants look at the first caption and the first audio only; they are easier, and are
kept apart by name: `t2a_one_sided` s00 > s01 (1/2), `a2t_one_sided` s00 > s10 (1/2), both (1/3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError
from residual_audio.metrics.uncertainty import sign_flip

Array = npt.NDArray[Any]

SIDES = ("text", "audio", "alignment")
"""Where a failing item fails: captions too close, sounds too close, or the two not aligned."""


def validate(similarity: Array) -> Array:
    """As float64 [item, k, k], or an error."""
    s = np.asarray(similarity, dtype=np.float64)
    if s.ndim != 3 or s.shape[1] != s.shape[2] or s.shape[1] < 2:
        raise InputError(f"similarities must be [item, k, k] with k of 2 or 3, not {s.shape}")
    if len(s) == 0:
        raise InputError("there is no pair to score")
    if not np.isfinite(s).all():
        raise InputError(
            f"pair {int(np.argwhere(~np.isfinite(s))[0][0])} has a similarity that is NaN"
        )
    return s


def outcomes(similarity: Array) -> dict[str, Array]:
    """Success of each item, as booleans: f, g, h, and for pairs the one-sided variants."""
    s = validate(similarity)
    right, wrong = _right_and_wrong(s)
    f: Array = np.all(right[:, None, :] > wrong, axis=(1, 2))  # within each audio's column
    g: Array = np.all(right[:, :, None] > wrong, axis=(1, 2))  # within each caption's row
    found: dict[str, Array] = {"f": f, "g": g, "h": f & g}
    if s.shape[1] == 2:
        t2a, a2t = s[:, 0, 0] > s[:, 0, 1], s[:, 0, 0] > s[:, 1, 0]
        found |= {"t2a_one_sided": t2a, "a2t_one_sided": a2t, "both_one_sided": t2a & a2t}
    return found


@dataclass(frozen=True)
class CaptionExchange:
    """A score against the same score with the captions of each item exchanged."""

    right: int
    """Items that pass."""
    wrong: int
    """Items that would pass if their captions were exchanged: wrong throughout."""
    rate: float
    """`wrong` as a share: what a model that tells nothing apart scores on these very pairs."""
    p: float
    """Sign test: a model that tells nothing apart is right throughout as often as wrong."""


def exchanged(similarity: Array, groups: Sequence[str] | None = None) -> dict[str, CaptionExchange]:
    """f, g and h of pairs beside what exchanged captions would score, items of a group together."""
    s = validate(similarity)
    if s.shape[1] != 2:
        raise InputError(f"captions are exchanged within pairs, not among {s.shape[1]}")
    own, other = outcomes(s), outcomes(s[:, ::-1])
    found = {}
    for name in ("f", "g", "h"):
        right, wrong = own[name], other[name]
        p = sign_flip(right.astype(float) - wrong, groups=groups)
        n_wrong = int(wrong.sum())
        found[name] = CaptionExchange(int(right.sum()), n_wrong, n_wrong / len(s), float(p))
    return found


def margins(similarity: Array) -> dict[str, Array]:
    """By how much each item passes: the smallest of the differences that F or G asks to be > 0."""
    s = validate(similarity)
    right, wrong = _right_and_wrong(s)
    f = (right[:, None, :] - wrong).min((1, 2))
    g = (right[:, :, None] - wrong).min((1, 2))
    return {"f": f, "g": g, "h": np.minimum(f, g)}


def chance(name: str, k: int = 2) -> float:
    """Probability that a random similarity (independent, continuous) passes.

    H: each off-diagonal must be below both its diagonals. With the diagonals sorted, the m-th
    smallest bounds 2(k−m) of them: k! ∫ ∏ d_m^{2(k−m)} = k! / ∏_m (m + Σ_{l≤m} 2(k−l)).
    """
    if name in ("f", "g"):
        return 1 / k**k
    if name == "h":
        upto = np.cumsum([2 * (k - m) for m in range(1, k + 1)]) + np.arange(1, k + 1)
        return math.factorial(k) / float(np.prod(upto))
    known = {"t2a_one_sided": 1 / 2, "a2t_one_sided": 1 / 2, "both_one_sided": 1 / 3}
    if name not in known:
        raise InputError(f"'{name}' is not a CompA score: f, g, h, {', '.join(known)}")
    return known[name]


def pair_geometry(text: Array, audio: Array) -> dict[str, Array]:
    """What separates a pair. `text`, `audio` [item, 2, d], unit rows.

    With u = t0 − t1 and v = a0 − a1, the four similarities interact as
    s00 + s11 − s01 − s10 = u·v = |u| |v| cos(u, v): text separation × audio separation × alignment.
    The separations are relative: 1 is the typical distance between captions (sounds) of different
    items of the benchmark, so models with narrow and wide clouds can be compared.
    """
    text, audio = np.asarray(text, dtype=np.float64), np.asarray(audio, dtype=np.float64)
    u, v = text[:, 0] - text[:, 1], audio[:, 0] - audio[:, 1]
    n_u, n_v = np.linalg.norm(u, axis=1), np.linalg.norm(v, axis=1)
    inner = (u * v).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "text_distance": n_u,
            "audio_distance": n_v,
            "text_separation": n_u / _typical_distance(text),
            "audio_separation": n_v / _typical_distance(audio),
            "alignment": inner / (n_u * n_v),
            # what the separation must exceed: twice the common offset along the other side's axis
            "text_needed": 2 * np.abs((text.mean(1) * v).sum(1)) * n_u / inner,
            "audio_needed": 2 * np.abs((audio.mean(1) * u).sum(1)) * n_v / inner,
        }


def failing_side(
    text: Array, audio: Array, *, collapsed_below: float = 0.02
) -> list[Literal["text", "audio", "alignment"] | None]:
    """Why an item fails, None where it passes H.

    1. a side whose pair is (nearly) one point, relative separation below `collapsed_below`;
    2. cos(u, v) ≤ 0: the two sides separate along unrelated axes, whatever the distances;
    3. otherwise F asks |v| cos > 2 |û·ā| and G asks |u| cos > 2 |v̂·t̄|: F failing means the sounds
       are too close for their common offset, G failing the captions; both: the one further away.
    """
    similarity = np.einsum("itd,iad->ita", np.asarray(text, float), np.asarray(audio, float))
    passed = outcomes(similarity)
    geometry = pair_geometry(text, audio)
    sides: list[Literal["text", "audio", "alignment"] | None] = []
    for i in range(len(similarity)):
        near_text = geometry["text_separation"][i]
        near_audio = geometry["audio_separation"][i]
        if passed["h"][i]:
            sides.append(None)
        elif min(near_text, near_audio) < collapsed_below:
            sides.append("text" if near_text <= near_audio else "audio")
        elif not geometry["alignment"][i] > 0:
            sides.append("alignment")
        else:
            lack_text = geometry["text_needed"][i] / geometry["text_distance"][i]
            lack_audio = geometry["audio_needed"][i] / geometry["audio_distance"][i]
            sides.append("text" if lack_text > lack_audio else "audio")
    return sides


def _right_and_wrong(s: Array) -> tuple[Array, Array]:
    """Diagonal [item, k]; the matrix with −∞ on its diagonal, so that it never wins."""
    k = s.shape[1]
    wrong = np.where(np.eye(k, dtype=bool), -np.inf, s)
    return np.diagonal(s, axis1=1, axis2=2), wrong


def _typical_distance(x: Array) -> float:
    """Median distance between members of different items."""
    points = x[:, 0]
    if len(points) < 2:
        return math.nan
    points = points[np.linspace(0, len(points) - 1, min(len(points), 1000)).astype(int)]
    square = (points**2).sum(1)
    d2 = square[:, None] + square[None] - 2 * points @ points.T
    return float(np.sqrt(np.median(np.maximum(d2[np.triu_indices(len(points), 1)], 0))))
