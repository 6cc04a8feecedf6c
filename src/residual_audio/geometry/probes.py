"""Geometry probes: what the shape of the two clouds says, without labels.

Intervals are value ± t × the spread over half-samples of the groups, drawn without replacement.
Half-samples vary as the full sample does, and, unlike a bootstrap with replacement, hold no
duplicates, which would lower every rank and put nearest neighbours at distance zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.errors import InputError
from residual_audio.geometry.clouds import Clouds, halves, thin
from residual_audio.metrics import cloud_shape, dimension, spectra
from residual_audio.metrics.bootstrap import spread_interval
from residual_audio.metrics.neighbours import neighbour_distances
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Result, Score

Array = npt.NDArray[Any]

KS = (1, 5, 10)
NEIGHBOURS = 20
_ABOUT_CLIPS = ("heard_before", "skipped", "remarks")
"""What every result says of its clips, as whoever embedded them knows it."""
N_HALVES = 50


def measure(clouds: Clouds) -> tuple[dict[str, float], dict[str, str]]:
    """Every probe by name, and the reason where it is NaN."""
    values, reasons = _side("audio", clouds.audio)
    if clouds.text is None:
        why_none = "no texts, or a model with no text side: cross-modal probes are left out"
        return values, reasons | {"text": why_none}
    of_text, why = _side("text", clouds.text)
    values |= of_text
    reasons |= why
    gap = cloud_shape.modality_gap(clouds.audio, clouds.text)
    values |= {"gap_l2": gap.l2, "gap_cosine": gap.cosine, "gap_angle_deg": gap.angle_deg}
    # which side becomes a hub when the other one asks
    for side, queries, items in (
        ("audio", clouds.text, clouds.audio),
        ("text", clouds.audio, clouds.text),
    ):
        hubs = cloud_shape.hubness(queries, items)
        values |= {f"hubness_{side}": hubs.skewness, f"never_retrieved_{side}": hubs.never}
    if len(clouds.pairs):
        a, t = clouds.audio[clouds.pairs[:, 0]], clouds.text[clouds.pairs[:, 1]]
        first = np.unique(clouds.pairs[:, 0], return_index=True)[1]
        values |= {
            "alignment": cloud_shape.alignment(a, t),
            "pair_auc": cloud_shape.pair_auc(clouds.audio, clouds.text, clouds.pairs),
            "mutual_neighbours": cloud_shape.mutual_neighbours(a[first], t[first]),
        }
    else:
        reasons["alignment"] = "which audio goes with which text is not known"
    return values, reasons


def _side(side: str, x: Array) -> tuple[dict[str, float], dict[str, str]]:
    sigma = np.linalg.svd(x, compute_uv=False)
    energy = cloud_shape.residual_energy(x, KS, sigma)
    distances = neighbour_distances(x, k=min(NEIGHBOURS, max(2, len(x) - 1)))
    two_nn, mle = dimension.two_nn(distances), dimension.mle(distances)
    values = {
        f"rankme_{side}": cloud_shape.rank_me(x, sigma),
        f"effective_rank_{side}": float(spectra.effective_rank(spectra.eigenspectrum(x))[0]),
        f"twonn_{side}": float(two_nn.value[0]),
        f"mle_{side}": float(mle.value[0]),
        **{f"residual_energy_{k}_{side}": energy[k] for k in KS},
        f"mean_cosine_{side}": cloud_shape.mean_cosine(x),
        f"uniformity_{side}": cloud_shape.uniformity(x),
    }
    reasons = {}
    for name, estimate in ((f"twonn_{side}", two_nn), (f"mle_{side}", mle)):
        if estimate.reason[0]:
            reasons[name] = estimate.reason[0]
    if math.isnan(values[f"effective_rank_{side}"]):
        reasons[f"effective_rank_{side}"] = "constant: all vectors are the same"
    return values, reasons


def probe(
    clouds: Clouds,
    *,
    n_halves: int = N_HALVES,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Result:
    """All probes of one model on one data set, with intervals."""
    values, reasons = measure(clouds)
    progress.step(f"half-samples of {clouds.model}", n_halves, "half-samples")
    rng = np.random.default_rng(seed)
    samples: dict[str, list[float]] = {name: [] for name in values}
    n_groups = len(np.unique(clouds.groups))
    for _ in range(n_halves if n_groups >= 4 else 0):
        found, _ = measure(halves(clouds, rng))
        for name in values:
            samples[name].append(found.get(name, math.nan))
        progress.advance()
    n_audio = len(clouds.audio)
    n_text = 0 if clouds.text is None else len(clouds.text)
    scores = []
    for name, value in values.items():
        n = n_text if name.endswith("_text") else n_audio
        least, most = bounds(name, n, clouds.audio.shape[1])
        low, high = _interval(value, np.array(samples[name]), n_groups)
        # np: NaN stays NaN
        ends = float(np.maximum(low, least)), float(np.minimum(high, most))
        scores.append(Score(name, value, *ends, n, None))
    return Result(
        task="probe",
        model=clouds.model,
        dataset=clouds.dataset,
        split=clouds.split,
        scores=tuple(scores),
        details={
            "n_audio": n_audio,
            "n_text": n_text,
            "n_pairs": len(clouds.pairs),
            "n_groups": n_groups,
            "dimension": clouds.audio.shape[1],
            "reasons": reasons,
            **{name: clouds.provenance.get(name) for name in _ABOUT_CLIPS},
        },
        provenance=provenance.collect(
            seed=seed, intervals=f"95%, {n_halves} half-samples of groups"
        )
        | {k: v for k, v in clouds.provenance.items() if k not in ("seed", *_ABOUT_CLIPS)},
    )


def bounds(name: str, n: int, d: int) -> tuple[float, float]:
    """Least and most that a probe of n rows in d dimensions can be: no interval leaves them."""
    limits = {
        "rankme": (1.0, float(min(n, d))),
        "effective_rank": (1.0, float(max(1, min(n - 1, d)))),
        "twonn": (0.0, math.inf),
        "mle": (0.0, math.inf),
        "residual_energy": (0.0, 1.0),
        "mean_cosine": (-1.0, 1.0),
        "uniformity": (-8.0, 0.0),  # log exp(−2 · 4), the largest distance of unit vectors being 2
        "gap_l2": (0.0, 2.0),
        "gap_cosine": (-1.0, 1.0),
        "gap_angle_deg": (0.0, 180.0),
        "never_retrieved": (0.0, 1.0),
        "alignment": (0.0, 4.0),
        "pair_auc": (0.0, 1.0),
        "mutual_neighbours": (0.0, 1.0),
    }
    found = next((ends for start, ends in limits.items() if name.startswith(start)), None)
    return found or (-math.inf, math.inf)


def _interval(value: float, drawn: Array, n_groups: int) -> tuple[float, float]:
    """Of 95%; NaN where most half-samples have no value."""
    known = drawn[np.isfinite(drawn)]
    if len(known) <= max(1, len(drawn) // 2):
        return math.nan, math.nan
    low, high = spread_interval(np.array(value), known, n_groups)
    return float(low), float(high)


def probe_matched(
    clouds: Sequence[Clouds],
    *,
    n: int | None = None,
    n_halves: int = N_HALVES,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[Result]:
    """Probe several models at the same number of audio and of text rows: that of the smallest."""
    if not clouds:
        raise InputError("there are no embeddings to probe")
    n_audio = min([len(c.audio) for c in clouds] + ([n] if n else []))
    texts = [len(c.text) for c in clouds if c.text is not None]
    n_text = min(texts + ([n] if n else [])) if texts else 0
    thinned = [
        c
        if len(c.audio) == n_audio and (c.text is None or len(c.text) == n_text)
        else thin(c, n_audio, n_text, seed)
        for c in clouds
    ]
    return [probe(c, n_halves=n_halves, seed=seed, progress=progress) for c in thinned]
