"""Result files of claims that no single run can tell."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from claims_cells import PROBES, cells
from scipy import stats

from residual_audio import evaluate
from residual_audio.evaluation.differences import paired_differences
from residual_audio.files import write_json
from residual_audio.report.run_tables import Tables
from residual_audio.results import read_result
from residual_audio.store import open_store


def probes(folder: Path, scores: str) -> Path:
    """Shape of both clouds of the pair sets."""
    kept = ("twonn_text", "twonn_audio", "gap_l2", "gap_angle_deg")
    found = {p.parent.name: read_result(p) for p in sorted(Path(scores).glob("probe-*/*.json"))}
    return write_json(
        folder / "probes.json",
        {
            "n": next(iter(found.values())).scores[0].n,
            "weights": next(iter(found.values())).provenance["model"]["sha256"],
            "sets": {
                key.removeprefix("probe-"): {
                    s.name: _short({"value": s.value, "low": s.low, "high": s.high})
                    for s in result.scores
                    if s.name in kept
                }
                for key, result in found.items()
            },
            "commands": [
                "residual-audio probe -m nano -d joined --root ESC50 --data-option of=esc50 "
                "--data-option folds=4 [--data-option kind=attribute] -o SCORES/probe-order",
                "python benchmarks/claims.py probes SCORES",
            ],
        },
    )


def adapted(folder: Path, run: str) -> Path:
    """Methods of `reweight compare`, as they stand in the run's table."""
    tables = Tables(Path(run))
    name = next(p.stem for p in sorted(tables.folder.glob("adapted*.csv")) if "gains" not in p.stem)
    table = tables[name]
    kept = ("key", "top1", "gain", "gain_low", "gain_high", "p", "q", "n")
    rows = [{k: row[k] for k in kept if k in row} for row in table.rows()]
    methods = [{k: None if v != v else v for k, v in row.items()} for row in rows]
    return write_json(
        folder / "adapted_orchestra.json",
        {
            "n": int(methods[0]["n"]),
            "methods": methods,
            "weights": open_store(Path(run)).model_info.sha256,
            "commands": [
                "residual-audio reweight compare RUN --method zero-shot "
                + " ".join(f"--method {row['key']}" for row in methods if _named(row["key"]))
                + " --method 'rule-*'",
                "python benchmarks/claims.py adapted RUN",
            ],
        },
    )


def _named(key: str) -> bool:
    return key != "zero-shot" and not key.startswith("rule-")


def architecture(folder: Path, reference: str) -> Path:
    """What the code of the encoder says: merging, widths, ranks, head sums, and TinySOL's index."""
    import residual_audio as ra
    from residual_audio.models.registry import load_model
    from residual_audio.table import read_csv

    model = load_model("htsat-tiny-random", "cpu")
    sites = [s for s in model.encoder.sites if s.kind == "attention"]
    noise = np.random.default_rng(0).normal(scale=0.1, size=5 * 32_000).astype(np.float32)
    cache = ra.load_model("nano").run([noise], sample_rate=32_000)
    parts = cache.contributions()
    error = np.abs(parts.total() - cache.latent).max() / np.abs(cache.latent).max()
    widths = [next(s.width for s in sites if s.stage == stage) for stage in range(4)]
    config = model.encoder.config
    first = config.spec_size // config.patch  # type: ignore[union-attr]
    grids = [first * 96 // width for width in widths]  # each merge halves it and doubles the width
    last = sites[-1]
    w = torch.randn(last.d_head, last.width, generator=torch.Generator().manual_seed(0))
    heads = torch.randn(500, last.d_head, generator=torch.Generator().manual_seed(1))
    return write_json(
        folder / "architecture.json",
        {
            "widths": widths,
            "grids": grids,
            "merges": sum(b < a for a, b in itertools.pairwise(grids)),
            "n_heads": sum(s.n_heads for s in sites),
            "d_head": last.d_head,
            "projected_rank": int(torch.linalg.matrix_rank(heads @ w)),
            "mixing": _mixing(w),
            "head_sum_error": float(f"{float(error):.1e}"),
            "tinysol": len(read_csv(Path(reference) / "tinysol" / "TinySOL_metadata.csv")),
            "commands": ["python benchmarks/claims.py architecture REFERENCE"],
        },
    )


def _mixing(w: torch.Tensor) -> float:
    """How much a projected head moves when all other heads of its block change: W_O's rows of one
    head never meet another's values."""
    d_head, width = w.shape
    whole = torch.randn(width, width, generator=torch.Generator().manual_seed(2))
    heads = torch.randn(2, 50, width, generator=torch.Generator().manual_seed(3))
    heads[1, :, :d_head] = heads[0, :, :d_head]
    own = torch.zeros(width)
    own[:d_head] = 1
    one, other = (heads[i] * own @ whole for i in range(2))
    return float((one - other).abs().max())


def compared(folder: Path, name: str, *runs: str) -> Path:
    """Several runs at the same number of clips."""
    import residual_audio as ra

    found = ra.compare_runs([Path(run) for run in runs])
    kept = ("run", found.place, "pca_99", "twonn", "ln_ratio", "evr_pc1", "fisher_trace")
    places = [
        {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in row.items() if k in kept}
        for row in found.places.rows()
    ]
    return write_json(
        folder / f"compared_{name}.json",
        {
            "n": found.n_clips,
            "place": found.place,
            "places": places,
            "commands": [f"residual-audio compare-runs {' '.join(Path(r).name for r in runs)}"],
        },
    )


def seeds(folder: Path, scores: str) -> Path:
    """Models told and not told what the pairs are about, in several seeds: what being told does."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for path in sorted(Path(scores).glob("geometry_seed-*.json")):
        of = read_result(path)
        pairs = read_result(path.with_name(path.name.replace("geometry_", "compa_", 1)))
        separation = pairs.details["failures"]["median_text_separation"]
        row = {"h": pairs["h"].value, "text_separation": separation}
        row |= {name: of[name].value for name in PROBES}
        told = "told" if of.model.endswith("true") else "not_told"
        for name, value in row.items():
            found.setdefault(of.split, {}).setdefault(name, {}).setdefault(told, []).append(value)
    sets = {
        key: {name: _contrast(values) for name, values in probes.items()}
        for key, probes in found.items()
    }
    over = {
        name: _contrast(
            {
                told: np.mean([probes[name][told] for probes in found.values()], axis=0).tolist()
                for told in ("told", "not_told")
            }
        )
        for name in ("h", "text_separation", *PROBES)
    }
    return write_json(
        folder / "seeds.json",
        {
            "n_seeds": len(next(iter(over.values()))["differences"]),
            "n_pairs": 60,
            "note": "seed 7: order.items=16",
            "sets": sets,
            "mean_of_sets": over,
            "commands": [
                "residual-audio train nano --root DATA --out RUN --stage order --set seed=N "
                "--set order.start=BEFORE --set order.told=true|false --set order.items=12",
                "python benchmarks/composition.py --model seed-N-true=RUN/ordered --root ESC-50 "
                "--pairs 60 --scores-only --out docs/results/composition/seeds",
                "python benchmarks/claims.py seeds docs/results/composition/seeds",
            ],
        },
    )


def objectives(folder: Path, contrastive: str, labels: str, scores: str) -> Path:
    """The same short training on texts and on class labels alone: one run each."""
    import residual_audio as ra

    found = ra.compare_runs([Path(contrastive), Path(labels)])
    kept = ("run", found.place, "pca_99", "twonn", "pr", "evr_pc1", "fisher_trace")
    judged = read_result(next(iter(Path(scores).glob("zero-shot_contrastive_*.json"))))["top1"]
    return write_json(
        folder / "objectives.json",
        {
            "n": found.n_clips,
            "place": found.place,
            "places": [_short({k: row[k] for k in kept}) for row in found.places.rows()],
            "paired": [_short(row) for row in found.paired.rows()],
            "top1_contrastive": [judged.value, judged.low, judged.high],
            "commands": [
                "residual-audio train small --root DATA --out contrastive "
                "--set audio.optimisation.steps=160",
                "residual-audio train small --root DATA --out labels "
                "--set audio.optimisation.steps=160 --set audio.objective=labels",
                "residual-audio extract -m RUN/model -d esc50 --root ESC-50 --fold 4 -o RUN-esc50",
                "residual-audio evaluate -m contrastive -d esc50 --root ESC-50 --fold 4 -o SCORES",
                "python benchmarks/claims.py objectives contrastive-esc50 labels-esc50 SCORES",
            ],
        },
    )


def _contrast(of: Mapping[str, list[float]]) -> dict[str, Any]:
    """Told − not told, seed by seed, with Student's interval of the mean."""
    told, not_told = np.array(of["told"]), np.array(of["not_told"])
    differences = told - not_told
    mean, n = float(differences.mean()), len(differences)
    half = stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n)
    return {
        "told": [float(f"{v:.5g}") for v in told],
        "not_told": [float(f"{v:.5g}") for v in not_told],
        "differences": [float(f"{v:.5g}") for v in differences],
        "mean": float(f"{mean:.5g}"),
        "low": float(f"{mean - half:.5g}"),
        "high": float(f"{mean + half:.5g}"),
    }


def curved(folder: Path, run: str) -> Path:
    """Isomap and autoencoder of a few heads."""
    store = open_store(Path(run))
    return write_json(
        folder / "curved.json",
        {
            "n": len(store.clips["id"]),
            "weights": store.model_info.sha256,
            "rows": [_short(row) for row in Tables(Path(run))["curved"].rows()],
            "commands": [
                "residual-audio analyse nano-esc50 --metrics curved",
                "python benchmarks/claims.py curved nano-esc50",
            ],
        },
    )


def early_exit(folder: Path, run: str) -> Path:
    """What leaving early costs and saves; times of a busy machine."""
    tables = Tables(Path(run))
    found: dict[str, Any] = {
        name: [_short(row) for row in tables[f"early_exit_{name}"].rows()]
        for name in ("blocks", "thresholds")
    }
    found["n"] = int(found["blocks"][0]["n"])
    found["weights"] = open_store(Path(run)).model_info.sha256
    found["commands"] = [
        "residual-audio reweight exit nano-esc50 --root ESC50",
        "python benchmarks/claims.py early_exit nano-esc50",
    ]
    return write_json(folder / "early_exit.json", found)


def widths(folder: Path, plain: str, wider: str, root: str) -> Path:
    """Two short trainings alike but for the widths of the stages, judged on the same clips."""
    results = {
        name: evaluate(model, "esc50", root=root, folds=[4])
        for name, model in (("plain", plain), ("wider", wider))
    }
    found = paired_differences(list(results.values()))[0]
    scores = {name: result["top1"] for name, result in results.items()}
    return write_json(
        folder / "widths.json",
        {
            "n": scores["plain"].n,
            "top1": {
                name: _short({"value": s.value, "low": s.low, "high": s.high, "chance": s.chance})
                for name, s in scores.items()
            },
            "difference": _short({"value": found.value, "low": found.low, "high": found.high}),
            "commands": [
                "residual-audio train small --root DATA --out plain "
                "--set audio.optimisation.steps=160",
                "residual-audio train small --root DATA --out wider "
                "--set audio.optimisation.steps=160 --set audio.encoder.widths='[48,144,192,384]'",
                "python benchmarks/claims.py widths plain/model wider/model ESC50",
            ],
        },
    )


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: (float(f"{v:.5g}") if np.isfinite(v) else None) if isinstance(v, float) else v
        for k, v in row.items()
    }


STUDIES: Mapping[str, Callable[..., Path]] = {
    "cells": cells,
    "adapted": adapted,
    "architecture": architecture,
    "compared": compared,
    "curved": curved,
    "early_exit": early_exit,
    "seeds": seeds,
    "objectives": objectives,
    "probes": probes,
    "widths": widths,
}
