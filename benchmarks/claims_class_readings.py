"""How claims about classes, ablation and attention are read from what was measured."""

from __future__ import annotations

import itertools

import numpy as np
from claims_measured import Measured
from claims_readings import arrow, means
from claims_trends import LEVEL, Holds, Show

from residual_audio.ablation.block_correlations import over_blocks


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
        return not any(d < 0 and q is not None and q <= LEVEL for d, q in _drops(m, stage))

    return holds


def stage_neutral(stage: int) -> Holds:
    """Neutral within 3 points either way; clearly not where a block matters."""

    def holds(m: Measured) -> bool | None:
        if "ablation" not in m:
            return None
        if any(q is not None and q <= LEVEL and d != 0 for d, q in _drops(m, stage)):
            return False
        of = m["ablation"]
        ends = zip(of["low"], of["high"], m["blocks"]["stage"], strict=True)
        near = all(low >= -0.03 and high <= 0.03 for low, high, s in ends if s == stage)
        return True if near else None

    return holds


def stage_harmful(stage: int) -> Holds:
    def holds(m: Measured) -> bool | None:
        if "ablation" not in m:
            return None
        found = _drops(m, stage)
        if any(d < 0 and q is not None and q <= LEVEL for d, q in found):
            return True
        return False if all(d > 0 and q is not None and q <= LEVEL for d, q in found) else None

    return holds


def most_informative(stage: int) -> Show:
    def show(m: Measured) -> str:
        if "ablation" not in m:
            return "–"
        found = [drop for drop, _ in _drops(m, stage)]
        best = int(np.argmax(found))
        return f"s{stage}.b{best} {100 * found[best]:+.1f} points"

    return show


def lowest_entropy_most_critical(m: Measured) -> bool | None:
    if "ablation" not in m:
        return None
    lowest = int(np.argmin(m["blocks"]["shannon_entropy_mean"]))
    return int(np.argmax(m["ablation"]["drop"])) == lowest


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
    return None if p > LEVEL else r < 0


def attention_pr(m: Measured) -> str:
    return arrow(m["attention"]["pr_mean"]) if "attention" in m else "–"


def attention_peak(m: Measured) -> bool | None:
    if "attention" not in m:
        return None
    of = m["attention"]["pr_mean"]
    return of[1] == max(of) and of[3] < of[0]


def attention_pca(m: Measured) -> str:
    return arrow(m["attention"]["pca_99_mean"]) if "attention" in m else "–"


def attention_pca_falls(m: Measured) -> bool | None:
    if "attention" not in m:
        return None
    return all(b < a for a, b in itertools.pairwise(m["attention"]["pca_99_mean"]))


def attention_std(m: Measured) -> str:
    return "std " + arrow(m["attention"]["pr_std"]) if "attention" in m else "–"


def attention_converges(m: Measured) -> bool | None:
    if "attention" not in m:
        return None
    of = m["attention"]["pr_std"]
    return max(of[2:]) < min(of[:2])
