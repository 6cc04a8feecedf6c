"""How sure the stage means are: bootstrap over clips, and the estimates against sample size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from residual_audio.analysis.battery import measure
from residual_audio.analysis.source import Source, each_site
from residual_audio.engine.jobs import on_cores
from residual_audio.metrics.bootstrap import percentile_interval, resample_counts
from residual_audio.metrics.dimension import two_nn_of_ratios
from residual_audio.metrics.estimators import DIMENSIONS, of_spectrum
from residual_audio.metrics.spectra import spectrum_of_covariance
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

    Resampling a clip resamples it for all heads at once. For TwoNN the ratios r₂/r₁ are resampled,
    not the clouds: a resampled cloud consists of duplicates.
    """
    rng = np.random.default_rng(seed)
    n = log_ratio.shape[1]
    counts = resample_counts(n, n_resamples, rng, groups)
    items = np.arange(n)
    draws = [np.repeat(items, row) for row in counts]
    found: dict[str, dict[str, list[Array]]] = {}
    first = 0
    progress.step("analyse: intervals", len(store.attention_sites), "sites")
    for part in each_site(store):
        stage = f"s{part.site.stage}"
        metrics = of_spectrum(resampled_spectra(part.x, counts))
        ratios = log_ratio[first : first + len(part.x)]
        first += len(part.x)
        if np.isfinite(ratios).any():
            metrics["twonn"] = _resampled_two_nn(ratios, draws)
        for name, values in metrics.items():  # head, resample
            found.setdefault(name, {}).setdefault(stage, []).append(values)
        progress.advance()
    out: dict[str, dict[str, list[float]]] = {}
    for name, stages in found.items():
        out[name] = {}
        for stage, parts in stages.items():
            with np.errstate(invalid="ignore"):
                means = np.nanmean(np.concatenate(parts), axis=0)
            low, high = percentile_interval(means, level)
            out[name][stage] = [float(low), float(high)]
    return out


def _resampled_two_nn(log_ratio: Array, draws: Sequence[Array]) -> Array:
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
