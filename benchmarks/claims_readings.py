"""How claims are read from what was measured: what is shown, and whether it holds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from claims_measured import Measured
from claims_trends import Holds, Show, against, over_depth, ratio_of_ends, spread_of
from claims_trends import steps as steps_of


def means(m: Measured, metric: str) -> list[float]:
    return m["stages"][metric]["mean"]


def arrow(values: Sequence[float], digits: int = 1) -> str:
    return " → ".join("–" if v is None else f"{v:.{digits}f}" for v in values)


def with_ends(value: float, low: float, high: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def mle_above(m: Measured) -> bool | None:
    """In every stage; no where TwoNN is higher in every stage."""
    gaps = [a - b for a, b in zip(means(m, "mle"), means(m, "twonn"), strict=True)]
    return True if min(gaps) > 0 else False if max(gaps) < 0 else None


def growth(m: Measured) -> str:
    found = ratio_of_ends(m)
    return f"{found.value:.1f}× [{found.low:.1f}, {found.high:.1f}]"


def growth_is(factor: float) -> Holds:
    def holds(m: Measured) -> bool:
        found = ratio_of_ends(m)
        return found.low <= factor <= found.high

    return holds


def exceeds_width(m: Measured) -> bool | None:
    return against(ratio_of_ends(m), 8.0)


def compact(m: Measured) -> str:
    pca, near = ratio_of_ends(m), ratio_of_ends(m, "twonn")
    return f"PCA 99% {pca.value:.1f}×, TwoNN {near.value:.1f}×"


def is_compact(m: Measured) -> bool | None:
    pca, near = ratio_of_ends(m), ratio_of_ends(m, "twonn")
    return True if near.high < pca.low else False if near.low > pca.high else None


def steps(m: Measured) -> str:
    return ", ".join(with_ends(one.value, one.low, one.high) for one in steps_of(m, "pca_99"))


def last_step(m: Measured) -> str:
    one = steps_of(m, "pca_99")[-1]
    return f"{with_ends(one.value, one.low, one.high)} of {m['d_head']}"


def last_step_small(m: Measured) -> bool | None:
    one, limit = steps_of(m, "pca_99")[-1], m["d_head"] * 2 / 24
    return True if one.high < limit else False if one.low > limit else None


def in_stage(m: Measured, stage: int, column: str = "L") -> list[float]:
    return [v for v, s in zip(m["blocks"][column], m["blocks"]["stage"], strict=True) if s == stage]


def within_stage(stage: int) -> Show:
    return lambda m: arrow(in_stage(m, stage))


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


def cvs(a: int, b: int) -> Show:
    def show(m: Measured) -> str:
        cv = m["heads"]["pca_99_cv"]
        return f"{cv[a]:.2f} against {cv[b]:.2f}"

    return show


def cv_larger(a: int, b: int) -> Holds:
    return lambda m: {1: True, -1: False, 0: None}[spread_of(m, a, b).sign]


def stds(m: Measured) -> str:
    return "std " + arrow(m["stages"]["pca_99"]["std"])


def boxes_widen(m: Measured) -> bool:
    of = m["stages"]["pca_99"]["std"]
    return min(of[2:]) > max(of[:2])


def outliers(m: Measured) -> str:
    of = m["heads"].get("outliers")
    return "–" if of is None else ", ".join(f"{share:.0%}" for share in of) + " of heads"


def outliers_late(m: Measured) -> bool | None:
    of = m["heads"].get("outliers")
    return None if of is None else min(of[2:]) > max(of[:2])


def evr_low(m: Measured) -> str:
    of = m["heads"]
    if "evr_below_0.4" not in of:
        return "–"
    return f"{of['evr_below_0.4'][2]:.0%} below 0.4, {of['evr_below_0.2'][3]:.0%} below 0.2"


def evr_low_late(m: Measured) -> bool | None:
    of = m["heads"]
    if "evr_below_0.4" not in of:
        return None
    return of["evr_below_0.4"][2] > 0.5 and of["evr_below_0.2"][3] > 0.5


def above_90(m: Measured) -> str:
    return f"{m['heads']['evr_above_0.9'][0]} of {m['stages']['n_heads'][0]} heads"


def depth(column: str) -> Show:
    def show(m: Measured) -> str:
        rho, p = over_depth(m, column)
        n = len(m["blocks"][column])
        return f"{arrow(m['blocks'][column], 2)}; ρ = {rho:+.2f}, p = {p:.2g} ({n} blocks)"

    return show


def late_ratio(m: Measured) -> str:
    return f"{min(m['blocks']['L/N'][4:]):.2f} to {max(m['blocks']['L/N'][4:]):.2f}"


def late_ratio_stable(m: Measured) -> bool:
    of = m["blocks"]["L/N"][4:]
    return max(of) / min(of) <= 2.6 / 2.3 * 1.05


def early_blocks(m: Measured) -> str:
    of = m["blocks"]
    return f"EVR1 {of['EVR1'][0]:.2f}, {of['EVR1'][1]:.2f}; L {of['L'][0]:.1f}, {of['L'][1]:.1f}"


def early_constrained(m: Measured) -> bool:
    of = m["blocks"]
    return min(of["EVR1"][:2]) > 0.66 and max(of["L"][:2]) < 7 * m["d_head"] / 24


def largest_boundary(m: Measured) -> str:
    of = m["blocks"]["L"]
    jumps = [b / a - 1 for a, b in itertools.pairwise(of)]
    best = int(np.argmax(jumps))
    return f"block {best} → {best + 1}: {jumps[best]:+.0%}; 1 → 2: {jumps[1]:+.0%}"


def largest_at_first_boundary(m: Measured) -> bool:
    of = m["blocks"]["L"]
    return int(np.argmax([b / a for a, b in itertools.pairwise(of)])) == 1


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


def _neighbours(m: Measured) -> list[float]:
    of = m["similarity"]["spectral_cosine"]["by_stage"]
    return [of[f"s{i}~s{i + 1}"] for i in range(3)]


def neighbour_similarity(m: Measured) -> str:
    return ", ".join(f"s{i}~s{i + 1} {v:.3f}" for i, v in enumerate(_neighbours(m)))


def first_boundary_breaks(m: Measured) -> bool:
    first, *others = _neighbours(m)
    return first < min(others)


def l0_apart(m: Measured) -> bool:
    first, others = _from_first(m)
    return first < others
