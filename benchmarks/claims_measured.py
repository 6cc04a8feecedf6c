"""What the claims are held against: one file a run, made from the tables that its commands left.

    python benchmarks/claims.py measure RUN NAME

reads RUN/tables and RUN/store and writes docs/results/claims/NAME.json.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.evaluation.zero_shot import evaluate_store
from residual_audio.files import read_json, write_json
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.store import open_store
from residual_audio.table import Table

STAGE_METRICS = (
    "pca_90", "pca_99", "twonn", "mle", "pr", "eff_rank", "evr_pc1", "shannon_entropy",
    "fisher_trace", "silhouette", "probe_accuracy", "projected_pca_99", "projected_evr_pc1",
    "projected_fisher_trace",
)  # fmt: skip
Measured = Mapping[str, Any]
"""One run: `stages`, `blocks`, `heads`, `tests`, `similarity`, `ablation` …; see `measure`."""


def measure(run: Path, commands: list[str]) -> dict[str, Any]:
    """Everything the claims ask of a run, rounded to what is printed."""
    tables, store = Tables(run), open_store(run)
    name = store.model_info.name
    found: dict[str, Any] = {
        "model": name if "/" not in name else "whisper:tiny.en.pt",
        "weights": store.model_info.sha256,
        "dataset": store.dataset_info.name,
        "d_head": int(store.attention_sites[0].d_head),
        "commands": commands,
        "n_clips": tables.statistics["n_clips"],
        **_of_tables(tables),
        "kept_by_two_thirds": _kept(tables),
    }
    if store.class_embeddings() is not None:
        top1 = evaluate_store(store)["top1"]
        found["top1"] = {k: getattr(top1, k) for k in ("value", "low", "high", "n", "chance")}
    for key, make in (("attention", _attention), ("ablation", _ablation), ("fisher", _fisher)):
        with contextlib.suppress(MissingTable):
            found[key] = make(tables)
    return _rounded(found)


def _of_tables(tables: Tables) -> dict[str, Any]:
    """What the tables of heads alone can tell."""
    statistics, heads = tables.statistics, tables["heads"]
    found: dict[str, Any] = {
        "n_heads": len(heads),
        "grouped_by": statistics["grouped_by"],
        "stages": _stages(tables, heads, statistics),
        "blocks": _blocks(tables["blocks"], heads),
        "heads": _heads(heads, statistics["grouped_by"]),
        "tests": _tests(statistics),
        "correlations": {
            name: statistics["correlations"][name]
            for name in ("pca_99~shannon_entropy", "pr~eff_rank", "twonn~mle")
            if name in statistics["correlations"]
        },
    }
    if statistics.get("similarity"):
        found["similarity"] = {
            kind: {k: values[k] for k in ("within", "cross", "ratio", "by_stage")}
            for kind, values in statistics["similarity"].items()
        }
    return found


def write_published(tables: Path, folder: Path) -> Path:
    """docs/results/claims/run_published_esc50.json: the source's own heads, by the same rules."""
    found = {
        "model": "CLAP, as published",
        "dataset": "esc50",
        "d_head": 24,
        "n_clips": 2000,
        "commands": [
            "residual-audio analyse --from-table REFERENCE/ESC50_id_df.csv -o TABLES",
            "python benchmarks/claims.py published TABLES",
        ],
        **_of_tables(Tables(tables)),
    }
    return write_json(folder / "run_published_esc50.json", _rounded(found))


def _stages(tables: Tables, heads: Table, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """metric → mean of each stage (of each block where there is one stage), with intervals."""
    kind = statistics["grouped_by"]
    column = "stage" if kind == "stage" else "block_index"
    places = sorted(set(heads[column].tolist()))
    out: dict[str, Any] = {}
    for metric in (m for m in STAGE_METRICS if m in heads):
        parts = [heads[metric][heads[column] == p].astype(float) for p in places]
        out[metric] = {
            "mean": [float(np.nanmean(v)) for v in parts],
            "std": [float(np.nanstd(v, ddof=1)) for v in parts],
        }
        table = tables["stages"]
        if kind == "stage" and f"{metric}_low" in table:
            out[metric]["low"] = table[f"{metric}_low"].tolist()
            out[metric]["high"] = table[f"{metric}_high"].tolist()
    out["ln_ratio"] = {
        "mean": [a / b for a, b in zip(out["pca_99"]["mean"], out["twonn"]["mean"], strict=True)]
    }
    out["n_heads"] = [int((heads[column] == p).sum()) for p in places]
    return out


def _blocks(blocks: Table, heads: Table) -> dict[str, list[float]]:
    """As they stand in the table, with the spread over the heads of each block."""
    names = ("stage", "L", "N", "L/N", "EVR1", "shannon_entropy_mean", "fisher_trace_mean")
    out = {name: blocks[name].tolist() for name in names if name in blocks}
    of = [heads["block_index"] == i for i in sorted(set(heads["block_index"].tolist()))]
    for name, metric in (("L", "pca_99"), ("EVR1", "evr_pc1")):
        values = heads[metric].astype(float)
        out[f"{name}_std"] = [float(values[o].std(ddof=1)) for o in of]
    return out | {"n_heads": [int(o.sum()) for o in of]}


def _heads(heads: Table, kind: str) -> dict[str, Any]:
    column = "stage" if kind == "stage" else "block_index"
    places = sorted(set(heads[column].tolist()))
    pca, evr = heads["pca_99"].astype(float), heads["evr_pc1"].astype(float)
    of = [heads[column] == p for p in places]
    return {
        "pca_99_range": [[float(pca[o].min()), float(pca[o].max())] for o in of],
        "pca_99_cv": [float(pca[o].std(ddof=1) / pca[o].mean()) for o in of],
        "evr_below_half": [float((evr[o] < 0.5).mean()) for o in of],
        "evr_above_0.9": [int((evr[o] > 0.9).sum()) for o in of],
        "evr_below_0.4": [float((evr[o] < 0.4).mean()) for o in of],
        "evr_below_0.2": [float((evr[o] < 0.2).mean()) for o in of],
        "outliers": [float(_outliers(pca[o]).mean()) for o in of],
    }


def _outliers(values: np.ndarray) -> np.ndarray:
    """Beyond the whiskers of a box plot: 1.5 interquartile ranges from the box."""
    low, high = np.quantile(values, [0.25, 0.75])
    reach = 1.5 * (high - low)
    return (values < low - reach) | (values > high + reach)


def _tests(statistics: Mapping[str, Any]) -> dict[str, Any]:
    out = {}
    for metric in ("pca_90", "pca_99", "twonn", "pr", "eff_rank", "evr_pc1"):
        of = statistics["metrics"][metric]
        out[metric] = {
            "f": of["anova"]["f"],
            "p": of["anova"]["p"],
            "pairs": [
                [p["a"], p["b"], p["difference"], p["cohen_d"], p["bonferroni_p"]]
                for p in of["pairs"]
            ],
            "trend": of["trend_with_block"]["spearman"],
        }
    return out


def _kept(tables: Tables) -> list[float]:
    """Mean share of variance that the first two thirds of the components keep, by stage."""
    spectra, heads = tables["spectra"], tables["heads"]
    spectra = spectra.where(spectra["space"] == "raw")
    of: dict[str, list[float]] = {}
    for head, eigenvalue in zip(spectra["head_id"], spectra["eigenvalue"], strict=True):
        of.setdefault(str(head), []).append(float(eigenvalue))
    kept: dict[int, list[float]] = {}
    for head, stage in zip(heads["head_id"], heads["stage"], strict=True):
        values = sorted(of[str(head)], reverse=True)
        k = round(2 * len(values) / 3)
        kept.setdefault(int(stage), []).append(sum(values[:k]) / sum(values))
    return [float(np.mean(kept[stage])) for stage in sorted(kept)]


def _attention(tables: Tables) -> dict[str, Any]:
    table = tables["attention_stages"]
    names = ("pr_mean", "pr_std", "pca_99_mean", "pca_99_std", "entropy_mean", "averaged_pr")
    return {name: table[name].tolist() for name in names if name in table}


def _ablation(tables: Tables) -> dict[str, Any]:
    """Blocks taken out, exactly; drop = accuracy lost."""
    table = tables["ablation_attention_exact"]
    out: dict[str, Any] = {
        "n": int(table["n"][0]),
        "drop": (-table["d_correct"].astype(float)).tolist(),
        "low": (-table["d_correct_high"].astype(float)).tolist(),
        "high": (-table["d_correct_low"].astype(float)).tolist(),
        "q": table["q_correct"].tolist(),
        "margin_drop": (-table["d_margin"].astype(float)).tolist(),
        "q_margin": table["q_margin"].tolist(),
    }
    try:
        stages = tables["ablation_stage_exact"]
        out["stage_drop"] = (-stages["d_correct"].astype(float)).tolist()
        out["stage_low"] = (-stages["d_correct_high"].astype(float)).tolist()
        out["stage_high"] = (-stages["d_correct_low"].astype(float)).tolist()
    except MissingTable:
        pass
    return out


def _fisher(tables: Tables) -> dict[str, Any]:
    """Does the Fisher ratio go with what a probe reads, and with what removal costs?"""
    from residual_audio.metrics.uncertainty import correlation

    table = tables["fisher"]
    out: dict[str, Any] = {
        "control": float(np.mean(table["probe_control"])) if "probe_control" in table else None,
        "chance": float(table["probe_chance"][0]) if "probe_chance" in table else None,
    }
    pairs = [("probe", table, "probe_accuracy"), ("silhouette", table, "silhouette")]
    with contextlib.suppress(MissingTable):
        pairs.append(("ablation", tables["ablation_head_direct"], "d_margin"))
    for name, other, column in pairs:
        if column not in other:
            continue
        sign = -1.0 if name == "ablation" else 1.0
        found = correlation(table["fisher_trace"], sign * other[column].astype(float))
        out[name] = {"spearman": found.value, "p": found.p_permutation, "n": found.n}
    return out


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if np.isfinite(value) else None
    return value


def write_measured(run: Path, name: str, folder: Path, commands: list[str]) -> Path:
    """docs/results/claims/NAME.json."""
    return write_json(folder / f"{name}.json", measure(run, commands))


def read_measured(folder: Path) -> dict[str, Measured]:
    """Every run that was measured, by name."""
    return {path.stem: read_json(path) for path in sorted(folder.glob("run_*.json"))}
