"""How claims are read from what was measured: what is shown, and whether it holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from claims_measured import Measured

from residual_audio.ablation.block_correlations import over_blocks

Show = Callable[[Measured], str]
Holds = Callable[[Measured], bool | None]


def means(m: Measured, metric: str) -> list[float]:
    return m["stages"][metric]["mean"]


def arrow(values: Sequence[float], digits: int = 1) -> str:
    return " → ".join("–" if v is None else f"{v:.{digits}f}" for v in values)


def _steps(m: Measured, metric: str = "pca_99") -> list[float]:
    return np.diff(means(m, metric)).tolist()


def rises(metric: str) -> Holds:
    """At every step, and over blocks where there is one stage: a clear positive trend."""

    def holds(m: Measured) -> bool | None:
        if metric not in m["stages"]:
            return None
        steps = _steps(m, metric)
        if m["grouped_by"] == "stage":
            return all(step > 0 for step in steps)
        return steps[0] > 0 and means(m, metric)[-1] > means(m, metric)[0]

    return holds


def falls(metric: str) -> Holds:
    return lambda m: all(step < 0 for step in _steps(m, metric))


def mle_above(m: Measured) -> bool:
    return all(a > b for a, b in zip(means(m, "mle"), means(m, "twonn"), strict=True))


def growth(m: Measured) -> str:
    return f"{means(m, 'pca_99')[-1] / means(m, 'pca_99')[0]:.1f}×"


def growth_is(at_least: float) -> Holds:
    return lambda m: means(m, "pca_99")[-1] / means(m, "pca_99")[0] >= at_least


def growth_against_width(m: Measured) -> str:
    return f"{growth(m)} against 8×"


def exceeds_width(m: Measured) -> bool:
    return means(m, "pca_99")[-1] / means(m, "pca_99")[0] > 8


def steps(m: Measured) -> str:
    return ", ".join(f"{step:+.1f}" for step in _steps(m))


def last_step(m: Measured) -> str:
    return f"{_steps(m)[-1]:+.2f} of {m['d_head']}"


def last_step_small(m: Measured) -> bool:
    return _steps(m)[-1] / m["d_head"] < 2 / 24


def last_step_smallest(m: Measured) -> bool:
    found = _steps(m)
    return found[-1] == min(found)


def first_step_largest(m: Measured) -> bool:
    found = _steps(m)
    return found[0] == max(found)


def _in_stage(m: Measured, stage: int, column: str = "L") -> list[float]:
    return [v for v, s in zip(m["blocks"][column], m["blocks"]["stage"], strict=True) if s == stage]


def within_stage(stage: int) -> Show:
    return lambda m: arrow(_in_stage(m, stage))


def grows_within(stage: int) -> Holds:
    return lambda m: _in_stage(m, stage)[-1] > _in_stage(m, stage)[0]


def falls_within(stage: int) -> Holds:
    return lambda m: _in_stage(m, stage)[-1] < _in_stage(m, stage)[0]


def _boundaries(m: Measured) -> list[float]:
    stages, values = m["blocks"]["stage"], m["blocks"]["L"]
    return [
        values[i] / values[i - 1] - 1 for i in range(1, len(values)) if stages[i] != stages[i - 1]
    ]


def boundaries(m: Measured) -> str:
    return ", ".join(f"{v:+.0%}" for v in _boundaries(m))


def boundaries_fall(m: Measured) -> bool:
    found = _boundaries(m)
    return found[0] > 0.1 and all(b < a for a, b in itertools.pairwise(found))


def ranges(m: Measured) -> str:
    low = m["heads"]["pca_99_range"]
    return (
        f"{low[0][0]:.0f}–{low[0][1]:.0f} of {m['d_head']}; last {low[-1][0]:.0f}–{low[-1][1]:.0f}"
    )


def first_spreads_more(m: Measured) -> bool:
    return m["heads"]["pca_99_cv"][0] > m["heads"]["pca_99_cv"][-1]


def cvs(m: Measured) -> str:
    cv = m["heads"]["pca_99_cv"]
    return f"{cv[1]:.2f} against {cv[-1]:.2f}"


def cv_falls(m: Measured) -> bool:
    return m["heads"]["pca_99_cv"][1] > m["heads"]["pca_99_cv"][-1]


def anova(m: Measured) -> str:
    found = [test["f"] for test in m["tests"].values() if test["f"] is not None]
    worst = max(test["p"] for test in m["tests"].values() if test["p"] is not None)
    return f"F {min(found):.0f} to {max(found):.0f}, p ≤ {worst:.1g}"


def anova_clear(m: Measured) -> bool:
    return all(test["p"] is not None and test["p"] < 0.001 for test in m["tests"].values())


def pairs(m: Measured) -> str:
    return f"p ≤ {max(p[4] for p in m['tests']['pca_99']['pairs']):.2g}"


def pairs_clear(m: Measured) -> bool:
    return all(p[4] < 0.05 for p in m["tests"]["pca_99"]["pairs"])


def effects(m: Measured) -> str:
    found = [abs(p[3]) for p in m["tests"]["pca_99"]["pairs"]]
    return f"|d| {min(found):.2f} to {max(found):.2f}"


def effects_large(m: Measured) -> bool:
    return all(abs(p[3]) > 0.8 for p in m["tests"]["pca_99"]["pairs"])


def below_half(m: Measured) -> str:
    share, n = m["heads"]["evr_below_half"], m["stages"]["n_heads"]
    return f"{round(share[0] * n[0])} of {n[0]} heads; {share[-1]:.0%}"


def below_half_split(m: Measured) -> bool:
    share = m["heads"]["evr_below_half"]
    return share[0] <= 0.25 and share[-1] >= 0.8


def rho(m: Measured, pair: str) -> float:
    return m["correlations"][pair]["spearman"]


def entropy_pca(m: Measured) -> str:
    return f"ρ = {rho(m, 'pca_99~shannon_entropy'):.2f}"


def pr_effrank(m: Measured) -> str:
    return f"ρ = {rho(m, 'pr~eff_rank'):.2f}"


def kept(m: Measured) -> str:
    return "two thirds keep " + ", ".join(f"{v:.1%}" for v in m["kept_by_two_thirds"])


def kept_99(m: Measured) -> bool:
    """In the stages that the claim is of: the last two."""
    return all(v >= 0.99 for v in m["kept_by_two_thirds"][-2:])


def similarity(m: Measured) -> str:
    of = m["similarity"]["spectral_cosine"]
    return f"{of['within']:.3f}, {of['cross']:.3f}, ratio {of['ratio']:.2f}"


def similarity_high(m: Measured) -> bool:
    of = m["similarity"]["spectral_cosine"]
    return of["within"] > 0.9 and of["cross"] > 0.9 and of["within"] > of["cross"]


def _from_first(m: Measured) -> tuple[float, float]:
    """Mean similarity of the first stage with others, and of the others with each other."""
    of = m["similarity"]["spectral_cosine"]["by_stage"]
    first = [v for k, v in of.items() if k.startswith("s0~") and k != "s0~s0"]
    others = [v for k, v in of.items() if "s0" not in k and k.split("~")[0] != k.split("~")[1]]
    return float(np.mean(first)), float(np.mean(others))


def l0_similarity(m: Measured) -> str:
    return "s0 with others {:.3f}, others {:.3f}".format(*_from_first(m))


def l0_apart(m: Measured) -> bool:
    first, others = _from_first(m)
    return first < others


def fisher_late(m: Measured) -> bool | None:
    if "fisher_trace" not in m["stages"]:
        return None
    found = means(m, "fisher_trace")
    return max(found[2:]) > max(found[:2])


def association(m: Measured, other: str) -> str:
    of = m.get("fisher", {}).get(other)
    return "–" if of is None else f"ρ = {of['spearman']:+.2f}, p = {of['p']:.2g} ({of['n']} heads)"


def goes_with(other: str) -> Holds:
    def holds(m: Measured) -> bool | None:
        of = m.get("fisher", {}).get(other)
        return None if of is None else of["spearman"] > 0 and of["p"] < 0.05

    return holds


def probes(m: Measured) -> str:
    if "probe_accuracy" not in m["stages"]:
        return "–"
    control = m.get("fisher", {}).get("control")
    beside = "" if control is None else f" (control task {control:.3f})"
    return arrow(means(m, "probe_accuracy"), 3) + beside


def _drops(m: Measured, stage: int) -> list[tuple[float, float | None]]:
    of = m["ablation"]
    rows = zip(of["drop"], of["q"], m["blocks"]["stage"], strict=True)
    return [(drop, q) for drop, q, s in rows if s == stage]


def ablation_first(m: Measured) -> str:
    if "ablation" not in m:
        return "–"
    of = m["ablation"]
    best = int(np.argmax(of["drop"]))
    return (
        f"{100 * of['drop'][0]:+.1f} [{100 * of['low'][0]:.1f}, {100 * of['high'][0]:.1f}] points; "
        f"most: block {best} {100 * of['drop'][best]:+.1f}"
    )


def first_block_most(m: Measured) -> bool | None:
    if "ablation" not in m:
        return None
    of = m["ablation"]
    others = max(of["high"][1:])
    if of["low"][0] > others:
        return True
    return False if of["drop"][0] < max(of["drop"][1:]) else None


def ablation_stage(stage: int) -> Show:
    def show(m: Measured) -> str:
        if "ablation" not in m:
            return "–"
        return ", ".join(f"{100 * drop:+.1f}" for drop, _ in _drops(m, stage)) + " points"

    return show


def stage_not_harmful(stage: int) -> Holds:
    def holds(m: Measured) -> bool | None:
        if "ablation" not in m:
            return None
        return not any(d < 0 and q is not None and q <= 0.05 for d, q in _drops(m, stage))

    return holds


def stage_neutral(stage: int) -> Holds:
    """Clearly not neutral where a block is clear of 0; few clips cannot show that it is neutral."""

    def holds(m: Measured) -> bool | None:
        if "ablation" not in m:
            return None
        clear = any(d > 0 and q is not None and q <= 0.05 for d, q in _drops(m, stage))
        return False if clear else None

    return holds


def stage_harmful(stage: int) -> Holds:
    def holds(m: Measured) -> bool | None:
        if "ablation" not in m:
            return None
        found = _drops(m, stage)
        if any(d < 0 and q is not None and q <= 0.05 for d, q in found):
            return True
        return False if all(d > 0 and q is not None and q <= 0.05 for d, q in found) else None

    return holds


def _entropy_importance(m: Measured) -> tuple[float, float]:
    found = over_blocks(m["blocks"]["shannon_entropy_mean"], m["ablation"]["drop"])
    return found.value, found.p


def entropy_importance(m: Measured) -> str:
    if "ablation" not in m:
        return "–"
    return "r = {:+.2f}, p = {:.2g} ".format(*_entropy_importance(m)) + "(12 blocks)"


def entropy_importance_negative(m: Measured) -> bool | None:
    if "ablation" not in m:
        return None
    r, p = _entropy_importance(m)
    return None if p > 0.05 else r < 0


def attention_pr(m: Measured) -> str:
    return arrow(m["attention"]["pr_mean"]) if "attention" in m else "–"


def attention_peak(m: Measured) -> bool | None:
    if "attention" not in m:
        return None
    of = m["attention"]["pr_mean"]
    return of[1] == max(of) and of[3] < of[0]


def attention_std(m: Measured) -> str:
    return "std " + arrow(m["attention"]["pr_std"]) if "attention" in m else "–"


def attention_converges(m: Measured) -> bool | None:
    if "attention" not in m:
        return None
    of = m["attention"]["pr_std"]
    return max(of[2:]) < min(of[:2])
