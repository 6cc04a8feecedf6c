"""The dimension battery's speed against scikit-learn + scikit-dimension, on the same heads."""

from __future__ import annotations

import time
import tracemalloc
from typing import TypedDict

import numpy as np

from residual_audio.analysis.battery import measure
from residual_audio.engine.jobs import available_cores
from residual_audio.errors import MissingExtraError
from residual_audio.metrics.spectra import isometry
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress

# the tiny HTS-AT: (heads in all, width of the stream) of each stage, d_head everywhere
STAGES = ((8, 96), (16, 192), (96, 384), (64, 768))
D_HEAD = 24
TRIES = 3
"""Of either side; the best one counts."""


def clouds(n_heads: int, n_clips: int, seed: int) -> Array:
    """Heads like real ones: classes, a falling spectrum, a bend, a common offset; float32."""
    rng = np.random.default_rng(seed)
    out = np.empty((n_heads, n_clips, D_HEAD), dtype=np.float32)
    label = rng.integers(0, 50, n_clips)
    for h in range(n_heads):
        hidden = rng.normal(size=(n_clips, 10)) + rng.normal(size=(50, 10))[label]
        bent = np.concatenate([hidden, np.sin(hidden), 0.1 * hidden[:, :4] ** 2], axis=1)
        mix = rng.normal(size=(D_HEAD, D_HEAD)) * np.exp(-np.arange(D_HEAD) / 8)
        out[h] = bent @ mix + 0.05 * rng.normal(size=(n_clips, D_HEAD)) + rng.normal(size=D_HEAD)
    return out


def projections(seed: int) -> list[Array]:
    """Rows of W_O of each head, by stage: [head, d_head, width]."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, D_HEAD, width)) / width**0.5 for n, width in STAGES]


class PeerTimes(TypedDict):
    """Both sides' seconds on the same data in one process, and how far their estimates differ."""

    n_heads: int
    n_clips: int
    cores: int
    ours_s: float
    peer_s: float
    ratio: float
    peer: str
    peer_heads: int
    peer_scaled: bool
    largest_difference: float


class Growth(TypedDict):
    """Time and memory at one number of clips."""

    n_clips: int
    seconds: float
    peak_mb: float
    input_mb: float


def bench_analyse(
    n_clips: int, peer_heads: int, seed: int, progress: Progress = SILENT
) -> PeerTimes:
    """Wall time of both on the same data in this process."""
    n_heads, cores = sum(n for n, _ in STAGES), available_cores()
    x, weights = clouds(n_heads, n_clips, seed), projections(seed)

    def ours(heads: Array, w: Array) -> tuple[float, dict[str, Array], dict[str, Array]]:
        start = time.perf_counter()
        roots = isometry(w)
        raw = measure(heads).columns
        projected = measure(heads, transform=roots).columns
        return time.perf_counter() - start, raw, projected

    progress.step("measuring", sum(min(peer_heads, n) for n, _ in STAGES), "heads of the peer")
    ours_s, peer_s, differences, done, offset = 0.0, 0.0, [0.0], 0, 0
    for (n, _), w in zip(STAGES, weights, strict=True):
        heads, spent, threads = x[offset : offset + n], [], None
        # stage by stage, both sides in turn: the pace of a machine changes while this runs
        first, raw, projected = ours(heads, w)
        own = [first]
        for i in range(min(peer_heads, n)):
            pair = ((heads[i], raw), (heads[i].astype(np.float64) @ w[i], projected))
            if threads is None:  # whichever number of threads is faster here, for the peer's sake
                tried = {t: sum(peer(cloud, t)[0] for cloud, _ in pair) for t in (1, cores)}
                threads = min(tried, key=tried.__getitem__)
            for cloud, mine in pair:
                tries = [peer(cloud, threads) for _ in range(TRIES)]
                theirs = tries[0][1]
                spent.append(min(seconds for seconds, _ in tries))
                differences += [abs(float(mine[k][i]) / v - 1) for k, v in theirs.items()]
            if len(own) < TRIES:
                own.append(ours(heads, w)[0])
            progress.advance()
        own += [ours(heads, w)[0] for _ in range(TRIES - len(own))]
        done += len(spent) // 2
        ours_s += min(own)
        peer_s += 2 * sum(spent) / len(spent) * n
        offset += n
    return {
        "n_heads": n_heads,
        "n_clips": n_clips,
        "cores": cores,
        "ours_s": ours_s,
        "peer_s": peer_s,
        "ratio": peer_s / ours_s,
        "peer": "scikit-learn PCA + scikit-dimension TwoNN + MLE, per head, raw and projected",
        "peer_heads": done,
        "peer_scaled": done < n_heads,
        "largest_difference": max(differences),
    }


def peer(cloud: Array, threads: int) -> tuple[float, dict[str, float]]:
    """PCA, TwoNN and MLE of one head as the published numbers were made, with the seconds spent."""
    from threadpoolctl import threadpool_limits

    try:
        import skdim
    except ImportError:
        raise MissingExtraError("scikit-dimension", "dev", "the comparison with the peer") from None
    from sklearn.decomposition import PCA

    with threadpool_limits(threads):
        start = time.perf_counter()
        shares = PCA().fit(cloud).explained_variance_ratio_
        two = skdim.id.TwoNN().fit(cloud).dimension_
        wide = skdim.id.MLE().fit(cloud).dimension_
        seconds = time.perf_counter() - start
    return seconds, {
        "pca_99": float(np.argmax(np.cumsum(shares) >= 0.99) + 1),
        "evr_pc1": float(shares[0]),
        "pr": float(1 / (shares**2).sum()),
        "twonn": float(two),
        "mle": float(wide),
    }


def bench_growth(
    sizes: tuple[int, ...], seed: int, sample: int = 4, progress: Progress = SILENT
) -> list[Growth]:
    """Seconds and peak memory of the whole battery against the number of clips."""
    n_heads = sum(n for n, _ in STAGES)
    roots = isometry(projections(seed)[-1][:sample])
    out: list[Growth] = []
    progress.step("growing", len(sizes), "sizes")
    for n_clips in sizes:
        x = clouds(sample, n_clips, seed)
        start = time.perf_counter()
        measure(x)
        measure(x, transform=roots)
        seconds = (time.perf_counter() - start) * n_heads / sample
        tracemalloc.start()
        measure(x[:2])
        work = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # what is kept for all heads: the input and log(r₂/r₁); what is worked on: a few heads
        kept = n_heads * n_clips * (D_HEAD * 4 + 8)
        out.append(
            {
                "n_clips": n_clips,
                "seconds": seconds,
                "peak_mb": (kept + work) / 2**20,
                "input_mb": n_heads * n_clips * D_HEAD * 4 / 2**20,
            }
        )
        progress.advance()
    return out
