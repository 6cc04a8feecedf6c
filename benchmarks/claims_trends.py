"""Trends over stages and blocks with how sure they are: linear contrasts of means over heads.

A stage has its heads; a step from one stage to the next is a contrast of two means, "the last step
is the smallest" a contrast of steps. Intervals are Welch's (spread over heads, degrees of freedom
by Satterthwaite), p values of several steps are Holm's. Heads of one model are what they are: this
says how cleanly stages separate, not what other models would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from claims_measured import Measured
from scipy import stats

from residual_audio.metrics.uncertainty import correlation, holm

Show = Callable[[Measured], str]
Holds = Callable[[Measured], bool | None]
LEVEL = 0.05


@dataclass(frozen=True)
class Estimate:
    """A contrast with its 95% interval and two-sided p."""

    value: float
    low: float
    high: float
    p: float

    @property
    def sign(self) -> int:
        """+1 or −1 where the interval is clear of 0, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


def contrast(
    mean: Sequence[float], std: Sequence[float], n: Sequence[int], weights: Sequence[float]
) -> Estimate:
    """Σ w m with Welch's interval."""
    m, s, k, w = (np.asarray(x, dtype=float) for x in (mean, std, n, weights))
    used = w != 0
    parts = (w**2 * s**2 / k)[used]
    value, variance = float(w[used] @ m[used]), float(parts.sum())
    if variance == 0:
        return Estimate(value, value, value, 0.0 if value else 1.0)
    degrees = variance**2 / float((parts**2 / (k[used] - 1)).sum())
    half = stats.t.ppf(0.975, degrees) * np.sqrt(variance)
    p = float(2 * stats.t.sf(abs(value) / np.sqrt(variance), degrees))
    return Estimate(value, value - half, value + half, p)


def of_stages(m: Measured, metric: str, weights: Sequence[float]) -> Estimate:
    """A contrast of the stage means of a metric."""
    of = m["stages"][metric]
    return contrast(of["mean"], of["std"], m["stages"]["n_heads"], weights)


def of_blocks(m: Measured, column: str, weights: Sequence[float]) -> Estimate:
    of = m["blocks"]
    return contrast(of[column], of[f"{column}_std"], of["n_heads"], weights)


def steps(m: Measured, metric: str) -> list[Estimate]:
    """From each stage (block, where there are no stages) to the next."""
    places = len(m["stages"][metric]["mean"])
    return [
        of_stages(
            m, metric, [-1.0 if j == i else 1.0 if j == i + 1 else 0.0 for j in range(places)]
        )
        for i in range(places - 1)
    ]


def one_way(m: Measured, metric: str, sign: int) -> bool | None:
    """Every step in one direction, each clear (Holm); no where a step is clear the other way."""
    if metric not in m["stages"]:
        return None
    found = steps(m, metric)
    clear = holm([one.p for one in found]) <= LEVEL
    if any(c and sign * one.value < 0 for c, one in zip(clear, found, strict=True)):
        return False
    return (
        True if all(c and sign * e.value > 0 for c, e in zip(clear, found, strict=True)) else None
    )


def rises(metric: str) -> Holds:
    return lambda m: one_way(m, metric, 1)


def falls(metric: str) -> Holds:
    return lambda m: one_way(m, metric, -1)


RISES = "every step up, each clear over heads (Welch, Holm); no: a step clearly down"
FALLS = "every step down, each clear over heads (Welch, Holm); no: a step clearly up"


def clearly(found: Sequence[Estimate]) -> bool | None:
    """All clearly above 0; no where one is clearly below."""
    if any(one.sign < 0 for one in found):
        return False
    return True if all(one.sign > 0 for one in found) else None


def step_is(rank: Sequence[int], sign: int) -> Holds:
    """Is the step `rank[0]` of PCA 99% larger (sign 1) or smaller (−1) than all others?"""

    def holds(m: Measured) -> bool | None:
        first, *others = rank
        found = []
        for other in others:
            weights = np.zeros(4)
            weights[first], weights[first + 1] = -1.0, 1.0
            weights[other] += 1.0
            weights[other + 1] -= 1.0
            found.append(of_stages(m, "pca_99", (sign * weights).tolist()))
        return clearly(found)

    return holds


def within(m: Measured, stage: int, column: str, sign: int = 1) -> bool | None:
    """First against last block of a stage."""
    places = [i for i, s in enumerate(m["blocks"]["stage"]) if s == stage]
    weights = np.zeros(len(m["blocks"]["stage"]))
    weights[places[0]], weights[places[-1]] = -sign, sign
    return clearly([of_blocks(m, column, weights.tolist())])


def grows_within(stage: int, column: str = "L") -> Holds:
    return lambda m: within(m, stage, column)


def falls_within(stage: int, column: str = "L") -> Holds:
    return lambda m: within(m, stage, column, -1)


def ratio_of_ends(m: Measured, metric: str = "pca_99") -> Estimate:
    """Last over first stage; the interval is that of the difference of logarithms."""
    of, n = m["stages"][metric], m["stages"]["n_heads"]
    mean = np.array(of["mean"])
    logs = contrast(
        np.log(mean).tolist(), (np.array(of["std"]) / mean).tolist(), n,
        [-1.0, *[0.0] * (len(mean) - 2), 1.0],
    )  # fmt: skip
    return Estimate(*(float(np.exp(v)) for v in (logs.value, logs.low, logs.high)), logs.p)


def against(found: Estimate, limit: float) -> bool | None:
    """Above the limit, clearly; no where clearly below."""
    return True if found.low > limit else False if found.high < limit else None


def over_depth(m: Measured, column: str) -> tuple[float, float]:
    """Spearman's ρ of a column with the place of the block, and its permutation p."""
    values = np.asarray(m["blocks"][column], dtype=float)
    found = correlation(np.arange(len(values), dtype=float), values)
    return found.value, found.p_permutation


def rises_over_blocks(column: str) -> Holds:
    def holds(m: Measured) -> bool | None:
        rho, p = over_depth(m, column)
        return None if p > LEVEL else rho > 0

    return holds


def spread_of(m: Measured, a: int, b: int) -> Estimate:
    """log(CV of stage a / CV of stage b) of PCA 99%: var(log CV) ≈ 1/2n + CV²/n."""
    cv, n = np.array(m["heads"]["pca_99_cv"]), np.array(m["stages"]["n_heads"], dtype=float)
    if not min(cv[a], cv[b]) > 0:  # all heads of a stage alike
        sign = float(np.sign(cv[a] - cv[b]))
        return Estimate(sign, sign, sign, 0.0)
    value = float(np.log(cv[a] / cv[b]))
    half = 1.96 * float(np.sqrt(sum(1 / (2 * n[i]) + cv[i] ** 2 / n[i] for i in (a, b))))
    p = float(2 * stats.norm.sf(abs(value) / (half / 1.96)))
    return Estimate(value, value - half, value + half, p)
