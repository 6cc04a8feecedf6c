"""How sure the stage means are: half-samples of clips, and the estimates against sample size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from residual_audio.analysis.battery import measure
from residual_audio.analysis.source import Source, each_site
from residual_audio.engine.jobs import on_cores
from residual_audio.metrics.bootstrap import half_samples, spread_interval
from residual_audio.metrics.dimension import two_nn_of_ratios
from residual_audio.metrics.estimators import BY_NAME, DIMENSIONS, of_spectrum
from residual_audio.metrics.spectra import spectrum_of_covariance
from residual_audio.metrics.uncertainty import n_groups
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows

CURVE_METRICS = tuple(estimator.name for estimator in DIMENSIONS)


def resampled_spectra(x: Array, counts: Array) -> Array:
    """Spectra of every head in every resample [resample, clip]: → [head, resample, d].

    All covariances of a head are one product of the counts with its outer products.
    """
    counts = counts.astype(np.float64)
    size = counts.sum(axis=1)

    def one(head: Array) -> Array:
        z = head.astype(np.float64)
        z = z - z.mean(axis=0)
        n, d = z.shape
        mean = (counts @ z) / size[:, None]
        outer = (z[:, :, None] * z[:, None, :]).reshape(n, d * d)
        second = (counts @ outer).reshape(-1, d, d) / size[:, None, None]
        covariance = second - mean[:, :, None] * mean[:, None, :]
        return spectrum_of_covariance(covariance * (size / (size - 1))[:, None, None])

    return np.stack(on_cores(one, list(x)))


def stage_intervals(
    store: Source,
    log_ratio: Array,
    *,
    n_resamples: int = 200,
    level: float = 0.95,
    seed: int = 0,
    groups: Sequence[str] | None = None,
    progress: Progress = SILENT,
) -> dict[str, dict[str, list[float]]]:
    """Interval of each stage mean, had other clips been drawn: metric → stage → [low, high].

    The spread is that over half-samples of the clips (whole groups), the same for all heads. For
    TwoNN the ratios r₂/r₁ of the whole cloud are halved, not the cloud: neighbours are farther
    apart in half a cloud.
    """
    rng = np.random.default_rng(seed)
    n = log_ratio.shape[1]
    whole = np.ones((1, n), dtype=np.int64)
    counts = np.concatenate([whole, half_samples(n, n_resamples, rng, groups)])
    found: dict[str, dict[str, list[Array]]] = {}
    first = 0
    progress.step("analyse: intervals", len(store.attention_sites), "sites")
    for part in each_site(store):
        stage = f"s{part.site.stage}"
        metrics = of_spectrum(resampled_spectra(part.x, counts))
        ratios = log_ratio[first : first + len(part.x)]
        first += len(part.x)
        if np.isfinite(ratios).any():
            metrics["twonn"] = _two_nn_of_parts(ratios, counts)
        for name, values in metrics.items():  # head, resample
            found.setdefault(name, {}).setdefault(stage, []).append(values)
        progress.advance()
    d = max(site.d_head for site in store.attention_sites)
    independent = n_groups(n, groups)
    return {
        name: {
            stage: _stage_interval(name, parts, independent, d, level)
            for stage, parts in stages.items()
        }
        for name, stages in found.items()
    }


def _stage_interval(
    name: str, parts: Sequence[Array], n_independent: int, d: int, level: float
) -> list[float]:
    """Of the mean over heads; the first column of each part is the whole sample."""
    with np.errstate(invalid="ignore"):
        means = np.nanmean(np.concatenate(parts), axis=0)
    low, high = spread_interval(means[0], means[1:], n_independent, level)
    least, most = _ENDS.get(BY_NAME[name].quantity, (-np.inf, np.inf))
    most = d if BY_NAME[name].spectrum is not None and most == np.inf else most
    return [float(np.maximum(low, least)), float(np.minimum(high, most))]


_ENDS = {"dimension": (0.0, np.inf), "share": (0.0, 1.0), "entropy": (0.0, np.inf)}
"""What no interval leaves; a linear dimension is at most the width of a head."""


def _two_nn_of_parts(log_ratio: Array, counts: Array) -> Array:
    draws = [np.flatnonzero(row) for row in counts]
    found = on_cores(lambda draw: two_nn_of_ratios(log_ratio[:, draw]), draws)
    return np.stack(found, axis=1)  # head, resample


def dimension_curves(
    store: Source,
    *,
    sizes: Sequence[int] | None = None,
    n_repeats: int = 3,
    max_heads: int = 8,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Table:
    """Stage means of random subsets of the clips: every estimator is biased when clips are few.

    At most `max_heads` heads a site, evenly spread, are measured; the notes say so.
    """
    n = len(store.clips)
    sizes = sizes or [s for s in (50, 100, 200, 400, 800, 1600, 3200, 6400, 12800) if s < n] + [n]
    rng = np.random.default_rng(seed)
    subsets = [
        (size, repeat, np.sort(rng.choice(n, size, replace=False)))
        for size in sizes
        for repeat in range(n_repeats if size < n else 1)
    ]
    values: dict[tuple[int, int, str, str], list[float]] = {}
    progress.step("analyse: curves", len(store.attention_sites), "sites")
    for part in each_site(store):
        chosen = np.unique(np.linspace(0, len(part.x) - 1, min(max_heads, len(part.x))).astype(int))
        for size, repeat, clips in subsets:
            found = measure(part.x[np.ix_(chosen, clips)], seed=seed).columns
            for name in CURVE_METRICS:
                key = (size, repeat, f"s{part.site.stage}", name)
                values.setdefault(key, []).extend(found[name].tolist())
        progress.advance()
    rows = []
    for size in sizes:
        stages = dict.fromkeys(key[2] for key in values if key[0] == size)
        for stage in stages:
            row: dict[str, object] = {"n_clips": size, "stage": int(stage[1:])}
            for name in CURVE_METRICS:
                runs = [
                    float(np.nanmean(v)) if np.isfinite(v).any() else float("nan")
                    for (s, _, g, m), v in values.items()
                    if (s, g, m) == (size, stage, name)
                ]
                row[name] = float(np.mean(runs))
                row[f"{name}_std"] = float(np.std(runs, ddof=1)) if len(runs) > 1 else float("nan")
            rows.append(row)
    note = f"at most {max_heads} heads a block; {n_repeats} random subsets of each size below {n}"
    return from_rows("dimension_vs_n", rows, "Stage means against the number of clips.", (note,))
