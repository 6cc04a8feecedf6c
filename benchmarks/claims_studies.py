"""Result files of claims that no single run can tell."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from residual_audio.files import read_json, write_json
from residual_audio.geometry.correlates import correlation_within
from residual_audio.metrics.uncertainty import correlation
from residual_audio.report.run_tables import Tables
from residual_audio.results import read_result

COMPOSITION = Path(__file__).parents[1] / "docs" / "results" / "composition"
PROBES = ("rank_me_text", "rank_me_audio", "modality_angle_deg")


def cells(folder: Path, reference: str, scores: str) -> Path:
    """Geometry against H over the cells of the composition study, and over the published ones."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted(COMPOSITION.glob("geometry_*.json")):
        pairs = COMPOSITION / path.name.replace("geometry_", "compa_")
        if pairs.is_file():
            of = read_result(path)
            found[path.stem.removeprefix("geometry_")] = {
                "h": read_result(pairs)["h"].value,
                **{name: of[name].value for name in PROBES},
            }
    h = np.array([cell["h"] for cell in found.values()])
    correlations = {}
    for name in PROBES:
        one = correlation(np.array([cell[name] for cell in found.values()]), h)
        correlations[name] = {"spearman": one.value, "p": one.p_permutation}
    judged = {p.parent.name: read_result(p) for p in sorted(Path(scores).glob("pairs-*/*.json"))}
    return write_json(
        folder / "cells.json",
        {
            "n_cells": len(found),
            "cells": found,
            "correlations": correlations,
            "published_within": _published_within(Path(reference)),
            "h_swap": {name: r.details["h_swap"] for name, r in judged.items()},
            "sign_tests": {name: r.details["sign_test"]["h"] for name, r in judged.items()},
            "commands": [
                "residual-audio compa -m nano -d joined --root ESC50 --data-option of=esc50 "
                "--data-option folds=4 [--data-option kind=attribute]",
                "python benchmarks/claims.py cells REFERENCE SCORES",
            ],
        },
    )


def _published_within(reference: Path) -> dict[str, dict[str, float]]:
    """The published cells once more, each benchmark's mean taken out."""
    known = read_json(reference / "published.json")["bahuguna_geometry"]
    scores = [_row(known["table2_compa"], row) for row in known["table2_compa"]["rows"]]
    probes = [_row(known["table3_probes"], row) for row in known["table3_probes"]["rows"]]
    h = np.array([float(_value(row, "H")) for row in scores])
    blocks = [str(_value(row, "bench")) for row in scores]
    out = {}
    for label, column in (("RankMe (text)", "rankme_text"), ("angle", "angle_deg")):
        x = np.array([float(_value(row, column)) for row in probes])
        r, p = correlation_within(x, h, blocks)
        out[label] = {"pearson_within": r, "p_within": p}
    return out


def _row(table: Mapping[str, Any], row: Any) -> dict[str, Any]:
    return row if isinstance(row, dict) else dict(zip(table["columns"], row, strict=True))


def _value(row: Mapping[str, Any], name: str) -> Any:
    return next(v for k, v in row.items() if k.lower().startswith(name.lower()))


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
            "commands": [
                "residual-audio reweight compare RUN --method zero-shot --method heads-0 --method "
                "heads-23 --method heads-0123 --method linear-probe-joint --method 'rule-*'",
                "python benchmarks/claims.py adapted RUN",
            ],
        },
    )


def architecture(folder: Path, reference: str) -> Path:
    """What the code of the encoder says: merging, widths, ranks, head sums, and TinySOL's index."""
    import torch

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
            "head_sum_error": float(f"{float(error):.1e}"),
            "tinysol": len(read_csv(Path(reference) / "tinysol" / "TinySOL_metadata.csv")),
            "commands": ["python benchmarks/claims.py architecture REFERENCE"],
        },
    )


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
    table = Tables(Path(run))["curved"]
    return write_json(
        folder / "curved.json",
        {
            "n": 400,
            "rows": [_short(row) for row in table.rows()],
            "commands": ["residual-audio analyse nano-esc50 --metrics curved"],
        },
    )


def early_exit(folder: Path, run: str) -> Path:
    """What leaving early costs and saves; times of a busy machine."""
    tables = Tables(Path(run))
    found = {
        name: [_short(row) for row in tables[f"early_exit_{name}"].rows()]
        for name in ("blocks", "thresholds")
    }
    commands = ["residual-audio reweight exit nano-esc50 --root ESC50"]
    n = int(found["blocks"][0]["n"])
    return write_json(folder / "early_exit.json", {"n": n, **found, "commands": commands})


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
}
