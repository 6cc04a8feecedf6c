"""Statistics of a per-head table: do stages differ, what rises with depth, what goes together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

from residual_audio.analysis.aggregate import groups_of, mean_and_std, ratio_of_means
from residual_audio.analysis.columns import summary_columns
from residual_audio.metrics.estimators import SUMMARY
from residual_audio.metrics.statistics import anova, by_group, compare_pairs, correlate
from residual_audio.metrics.uncertainty import fdr
from residual_audio.metrics.validate import Array
from residual_audio.table import Table

NOTE = (
    "The heads of one model are counted as they are, not as a sample of models: the tests say how "
    "cleanly its stages separate."
)


def head_statistics(heads: Table) -> dict[str, object]:
    """Everything that can be said from a per-head table alone, ready for JSON."""
    stages = [f"s{stage}" for stage in heads["stage"].tolist()]
    kind, members = groups_of(heads)
    metrics: dict[str, Any] = {}
    for name in summary_columns(heads):
        groups = by_group(heads[name], members)
        metrics[name] = {
            "stages": _means(by_group(heads[name], stages)),
            f"{kind}s": _means(groups),
            "anova": asdict(anova(groups)),
            "pairs": [asdict(pair) for pair in compare_pairs(groups)],
            "trend_with_stage": asdict(correlate(heads["stage"], heads[name])),
            "trend_with_block": asdict(correlate(heads["block_index"], heads[name])),
        }
    _add_rates([of["anova"] for of in metrics.values()], "p")
    return {
        "n_heads": len(heads),
        "n_blocks": len(set(heads["block_index"].tolist())),
        "n_stages": len(set(stages)),
        "grouped_by": kind,
        "metrics": metrics,
        "ratio_of_means": {
            stage: ratio_of_means(heads.where(heads["stage"] == int(stage[1:])))
            for stage in dict.fromkeys(stages)
        },
        "correlations": correlations(heads),
        "note": NOTE,
    }


def _means(groups: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    return {
        group: dict(zip(("mean", "std", "n"), mean_and_std(values), strict=True))
        for group, values in groups.items()
    }


def correlations(heads: Table) -> dict[str, Any]:
    """Every pair of metrics of the raw heads, as `a~b`."""
    names = [estimator.name for estimator in SUMMARY if estimator.name in heads]
    found = {f"{a}~{b}": asdict(correlate(heads[a], heads[b])) for a, b in combinations(names, 2)}
    _add_rates(list(found.values()), "spearman_p")
    return found


def _add_rates(tests: Sequence[dict[str, Any]], p: str) -> None:
    """`q` beside each p: the false discovery rate over tests that are shown together."""
    for test, q in zip(tests, fdr([test[p] for test in tests]), strict=True):
        test["q"] = float(q)
