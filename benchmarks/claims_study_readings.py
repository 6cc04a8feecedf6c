"""How claims are read from studies of their own: what is shown, and whether it holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from claims_gain_readings import SMALL
from claims_readings import arrow

Study = Mapping[str, Any]


def cell(name: str) -> Callable[[Study], str]:
    def show(s: Study) -> str:
        of = s["correlations"][name]
        models, sets = s["n_models"], s["n_sets"]
        p = f"p = {of['p_cells']:.2g} as cells, {of['p']:.2g} as models"
        return f"ρ = {of['spearman']:+.2f}, {p} ({models} models × {sets} sets)"

    return show


def cell_sign(name: str, sign: int) -> Callable[[Study], bool | None]:
    def holds(s: Study) -> bool | None:
        of = s["correlations"][name]
        return None if of["p"] > 0.05 else of["spearman"] * sign > 0

    return holds


def recomputed(name: str) -> Callable[[Study], str]:
    def show(s: Study) -> str:
        of = s["published"][name]
        p = f"p = {of['p_cells']:.2g} as six cells, {of['p']:.2g} as three models"
        return f"ρ = {of['spearman']:+.2f}, {p}"

    return show


def recomputed_sign(name: str, sign: int) -> Callable[[Study], bool | None]:
    """A claimed association holds where it is clear; that there is none, six cells cannot show."""

    def holds(s: Study) -> bool | None:
        of = s["published"][name]
        if of["p"] > 0.05:
            return None
        return of["spearman"] * sign > 0 if sign else False

    return holds


def within_published(s: Study) -> str:
    found = {"RankMe (text)": "rankme_text", "angle": "angle"}
    return ", ".join(
        f"{label} r = {s['published'][key]['pearson_within']:+.2f}, "
        f"p = {s['published'][key]['p_within']:.2g}"
        for label, key in found.items()
    )


def within_clear(s: Study) -> bool | None:
    return (
        None
        if any(s["published"][key]["p_within"] > 0.05 for key in ("rankme_text", "angle"))
        else True
    )


def l2_and_angle(s: Study) -> str:
    return f"ρ = {s['published_l2_angle']:+.2f} over its six cells"


def l2_not_angle(s: Study) -> bool:
    return abs(s["published_l2_angle"]) < 0.9


def chance_levels(s: Study) -> str:
    swap = ", ".join(f"{rate:.3f}" for rate in s["h_swap"].values())
    return (
        f"independent similarities pass {s['h_simulated']:.3f} (1/6); these pairs with captions "
        f"exchanged {swap}"
    )


def chance_is_full_pool(s: Study) -> bool:
    return abs(s["h_simulated"] - 0.025) < 0.01


def probe(name: str, digits: int) -> Callable[[Study], str]:
    def show(s: Study) -> str:
        return "; ".join(
            f"{key} {of[name]['value']:.{digits}f} [{of[name]['low']:.{digits}f}, "
            f"{of[name]['high']:.{digits}f}]"
            for key, of in s["sets"].items()
        )

    return show


def probe_within(name: str, low: float, high: float) -> Callable[[Study], bool | None]:
    """Intervals of all sets inside; no where an interval of one is outside."""

    def holds(s: Study) -> bool | None:
        found = [of[name] for of in s["sets"].values()]
        if any(of["high"] < low or of["low"] > high for of in found):
            return False
        return True if all(low <= of["low"] and of["high"] <= high for of in found) else None

    return holds


def exchanged(s: Study) -> str:
    return "; ".join(
        f"{name}: {of['right']} right, {of['wrong_throughout']} wrong throughout, p = {of['p']:.2g}"
        for name, of in s["sign_tests"].items()
    )


def exchanged_holds(s: Study) -> bool | None:
    """True where no pair set is told apart from its exchange."""
    return all(of["p"] > 0.05 for of in s["sign_tests"].values())


def merging(s: Study) -> str:
    return f"{s['merges']} merges: token grids {arrow(s['grids'], 0)}"


def last_merge(s: Study) -> str:
    return f"grid {s['grids'][-2]} → {s['grids'][-1]}, width {s['widths'][-2]} → {s['widths'][-1]}"


def ceiling(s: Study) -> str:
    return f"rank {s['projected_rank']} at width {s['widths'][-1]} (d_head {s['d_head']})"


def _places(s: Study, metric: str) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {}
    for row in s["places"]:
        out.setdefault(row["run"], []).append(row[metric])
    return out


def told(name: str, digits: int = 1) -> Callable[[Study], str]:
    """Mean difference that being told order makes, over seeds, with its interval."""

    def show(s: Study) -> str:
        of = s["mean_of_sets"][name]
        low, mean, high = (f"{of[k]:+.{digits}f}" for k in ("low", "mean", "high"))
        return f"told − not told {mean} [{low}, {high}] ({s['n_seeds']} seeds)"

    return show


def told_sign(name: str, sign: int) -> Callable[[Study], bool | None]:
    """Whether H rose and this moved in the claimed direction; not told where intervals hold 0."""

    def holds(s: Study) -> bool | None:
        h, of = s["mean_of_sets"]["h"], s["mean_of_sets"][name]
        if h["low"] <= 0 or of["low"] <= 0 <= of["high"]:
            return None
        return bool(of["mean"] * sign > 0)

    return holds


def objectives(s: Study) -> str:
    pca, fisher = _places(s, "pca_99"), _places(s, "fisher_trace")
    return "; ".join(
        f"{run.removesuffix('-esc50')}: PCA 99% {arrow(pca[run])}, Fisher {arrow(fisher[run], 2)}"
        for run in pca
    )


def one_run_each(_: Study) -> None:
    """One short run a setting: what differs may be the seed."""


def data_sets(s: Study) -> str:
    return "; ".join(f"{run} {arrow(v)}" for run, v in _places(s, "pca_99").items())


def trained_random(s: Study) -> str:
    pca = _places(s, "pca_99")
    evr = _places(s, "evr_pc1")
    return "; ".join(f"{run}: PCA 99% {arrow(pca[run])}, EVR1 {arrow(evr[run], 2)}" for run in pca)


def whisper_growth(s: Study) -> str:
    return data_sets(s)


def whisper_grows(s: Study) -> bool:
    trained = next(v for run, v in _places(s, "pca_99").items() if "random" not in run)
    return trained[-1] > trained[0] and all(b > a for a, b in itertools.pairwise(trained))


def curvature(s: Study) -> str:
    """At four numbers in the middle."""
    rows = [row for row in s["rows"] if row["k"] == 4]
    return "; ".join(
        f"s{row['stage']}: PCA {row['kept_pca']:.1%}, autoencoder {row['kept_autoencoder']:.1%}, "
        f"Isomap {'–' if row['isomap'] is None else format(row['isomap'], '.0f')}"
        for row in rows
    )


def curved_late(s: Study) -> bool | None:
    """Held-out variance of the last two stages that bending adds: 2 points or more in both."""
    late = [row["curvature"] for row in s["rows"] if row["k"] == 4 and row["stage"] >= 2]
    return all(gap >= 0.02 for gap in late)


def consistent(s: Study) -> bool:
    found = list(_places(s, "pca_99").values())
    return all(all(b > a for a, b in itertools.pairwise(v)) for v in found)


def _cv(values: Sequence[float]) -> float:
    return stdev(values) / mean(values)


def last_stages(s: Study) -> str:
    pca, ratio = ([v[-1] for v in _places(s, k).values()] for k in ("pca_99", "ln_ratio"))
    return f"PCA 99% {joined(pca)}, CV {_cv(pca):.2f}; L/N {joined(ratio, 2)}, CV {_cv(ratio):.2f}"


def joined(values: Sequence[float], digits: int = 1) -> str:
    return ", ".join(f"{v:.{digits}f}" for v in values)


def last_alike(s: Study) -> bool:
    found = ([v[-1] for v in _places(s, k).values()] for k in ("pca_99", "ln_ratio"))
    return all(_cv(values) <= 0.05 for values in found)


def _first_jumps(s: Study) -> list[float]:
    return [v[1] - v[0] for v in _places(s, "pca_99").values()]


def first_jumps(s: Study) -> str:
    found = _first_jumps(s)
    return ", ".join(f"{v:+.1f}" for v in found) + f", CV {_cv(found):.2f} ({len(found)} data sets)"


def first_jumps_alike(s: Study) -> bool:
    return _cv(_first_jumps(s)) <= 0.10


def random_alike(s: Study) -> bool:
    pca, evr = (
        next(v for run, v in _places(s, metric).items() if "random" in run)
        for metric in ("pca_99", "evr_pc1")
    )
    grows = all(b > a for a, b in itertools.pairwise(pca))
    return grows and all(b < a for a, b in itertools.pairwise(evr))


def _before_last_stage(s: Study) -> Mapping[str, Any]:
    return next(row for row in s["blocks"] if row["block"] == "s2.b5")


def _points(row: Mapping[str, Any]) -> str:
    loss, low, high = (100 * row[k] for k in ("loss", "loss_low", "loss_high"))
    return f"{loss:+.1f} [{low:+.1f}, {high:+.1f}] points lost"


def exits(s: Study) -> str:
    before = _before_last_stage(s)
    return f"before the last stage {before['top1']:.1%}, {_points(before)}"


def exit_free(s: Study) -> bool | None:
    before = _before_last_stage(s)
    return False if before["loss_low"] > 0 else True if before["loss_high"] <= SMALL else None


def _paying(s: Study) -> Mapping[str, Any] | None:
    """The threshold that saves most among those whose loss stays small."""
    safe = [r for r in s["thresholds"] if r["loss_high"] <= SMALL and r["time_saved"] > 0]
    return max(safe, key=lambda r: r["time_saved"], default=None)


def adaptive(s: Study) -> str:
    best = _paying(s)
    if best is None:
        return "no threshold saves time and keeps the loss below 3 points"
    return (
        f"at threshold {best['threshold']:g} {best['left_early']:.0%} leave early, "
        f"{best['time_saved']:.0%} of the time saved, {_points(best)}"
    )


def adaptive_pays(s: Study) -> bool:
    return _paying(s) is not None


def widths(s: Study) -> str:
    of = s["top1"]
    said = ", ".join(
        f"{name} {v['value']:.1%} [{v['low']:.1%}, {v['high']:.1%}]" for name, v in of.items()
    )
    d = s["difference"]
    gain = f"{100 * d['value']:+.1f} [{100 * d['low']:.1f}, {100 * d['high']:.1f}] points"
    return f"top-1 of {s['n']} clips: {said}; wider − plain {gain}"
