"""How claims are read from studies of their own: what is shown, and whether it holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from claims_readings import arrow

Study = Mapping[str, Any]


def _method(s: Study, key: str) -> Mapping[str, Any]:
    return next(row for row in s["methods"] if row["key"] == key)


def _gain(row: Mapping[str, Any]) -> str:
    gain, low, high = (100 * row[name] for name in ("gain", "gain_low", "gain_high"))
    return f"{row['top1']:.1%} ({gain:+.1f} [{low:.1f}, {high:.1f}])"


def gain_of(key: str) -> Callable[[Study], str]:
    def show(s: Study) -> str:
        base = _method(s, "zero-shot")["top1"]
        row = _method(s, key)
        return f"{base:.1%} → {_gain(row)} points, {row['gain'] / base:+.0%} relative"

    return show


def gain_clear(key: str) -> Callable[[Study], bool | None]:
    def holds(s: Study) -> bool | None:
        row, base = _method(s, key), _method(s, "zero-shot")["top1"]
        if not row["gain_low"] > 0:
            return None if row["gain_high"] > 0 else False
        return row["gain"] / base >= 0.08

    return holds


def residual_and_probe(s: Study) -> str:
    probe = _method(s, "linear-probe-joint")
    return f"ResiDual {_gain(_method(s, 'heads-0123'))}, probe {_gain(probe)}"


def residual_below_probe(s: Study) -> bool | None:
    row, probe = _method(s, "heads-0123"), _method(s, "linear-probe-joint")
    return row["gain_low"] <= 0 and probe["gain_low"] > 0


def stage_sets(s: Study) -> str:
    keys = [row["key"] for row in s["methods"] if row["key"].startswith("heads-")]
    return ", ".join(f"{key[6:]}: {_method(s, key)['top1']:.1%}" for key in keys)


def _best(s: Study) -> str:
    rows = [row for row in s["methods"] if row["key"].startswith("heads-")]
    return max(rows, key=lambda row: row["top1"])["key"]


def first_best(s: Study) -> bool:
    return _best(s) == "heads-0"


def late_best(s: Study) -> bool | None:
    ends = {k: _method(s, k) for k in ("heads-23", "heads-0123", "heads-0")}
    if ends["heads-23"]["gain_high"] < ends["heads-0123"]["gain_low"]:
        return False
    return True if _best(s) == "heads-23" else None


def all_worst(s: Study) -> bool:
    rows = [row for row in s["methods"] if row["key"].startswith("heads-")]
    return min(rows, key=lambda row: row["top1"])["key"] == "heads-0123"


def rules(s: Study) -> str:
    rows = [row for row in s["methods"] if row["key"].startswith("rule-")]
    return ", ".join(f"{row['key'][5:]} {100 * row['gain']:+.1f}" for row in rows) + " points"


def rules_help(s: Study) -> bool:
    rows = [row for row in s["methods"] if row["key"].startswith("rule-")]
    return any(row["gain_low"] > 0 and row["q"] <= 0.05 for row in rows)


def cell(name: str) -> Callable[[Study], str]:
    def show(s: Study) -> str:
        of = s["correlations"][name]
        return f"ρ = {of['spearman']:+.2f}, p = {of['p']:.2g} ({s['n_cells']} cells)"

    return show


def cell_sign(name: str, sign: int) -> Callable[[Study], bool | None]:
    def holds(s: Study) -> bool | None:
        of = s["correlations"][name]
        return None if of["p"] > 0.05 else of["spearman"] * sign > 0

    return holds


def within_published(s: Study) -> str:
    return ", ".join(
        f"{name} r = {of['pearson_within']:+.2f}, p = {of['p_within']:.2g}"
        for name, of in s["published_within"].items()
    )


def within_clear(s: Study) -> bool | None:
    return None if any(of["p_within"] > 0.05 for of in s["published_within"].values()) else True


def chance_levels(s: Study) -> str:
    swap = ", ".join(f"{rate:.3f}" for rate in s["h_swap"].values())
    return f"1/6 of independent similarities; of these pairs with captions exchanged {swap}"


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


def consistent(s: Study) -> bool:
    found = list(_places(s, "pca_99").values())
    return all(all(b > a for a, b in itertools.pairwise(v)) for v in found)


def trained_random(s: Study) -> str:
    pca = _places(s, "pca_99")
    evr = _places(s, "evr_pc1")
    return "; ".join(f"{run}: PCA 99% {arrow(pca[run])}, EVR1 {arrow(evr[run], 2)}" for run in pca)


def random_alike(s: Study) -> bool:
    found = _places(s, "evr_pc1")
    random = next(v for run, v in found.items() if "random" in run)
    return all(b < a for a, b in itertools.pairwise(random))


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


def exits(s: Study) -> str:
    before = next(row for row in s["blocks"] if row["block"] == "s2.b5")
    sure = min((r for r in s["thresholds"] if r["loss_high"] <= 0.03), default=None,
               key=lambda r: r["threshold"])  # fmt: skip
    said = f"before the last stage {before['top1']:.1%}, {100 * before['loss']:.1f} points lost"
    if sure is None:
        return said + "; no threshold keeps the loss below 3 points"
    return said + (
        f"; at threshold {sure['threshold']:g} {sure['left_early']:.0%} leave early, "
        f"{sure['time_saved']:.0%} of the time saved, {100 * sure['loss']:.1f} points lost"
    )


def exit_free(s: Study) -> bool:
    """Leaving before the last stage costs nothing that 95% can see beyond 3 points."""
    before = next(row for row in s["blocks"] if row["block"] == "s2.b5")
    return before["loss_high"] <= 0.03
