"""Geometry against composition over models and sets, and over the published cells once more."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from residual_audio.files import read_json, write_json
from residual_audio.geometry.correlates import correlation_within
from residual_audio.metrics.compa import outcomes
from residual_audio.metrics.uncertainty import correlation
from residual_audio.results import read_result

COMPOSITION = Path(__file__).parents[1] / "docs" / "results" / "composition"
PROBES = ("rank_me_text", "rank_me_audio", "modality_angle_deg")
MODELS = ("control", "nano", "step-000")
"""Of the composition study: told nothing of order, told, and before both."""
COLUMNS = {
    "rankme_text": "rankme_text", "rankme_audio": "rankme_audio", "angle": "angle_deg",
    "l2": "l2_gap", "residual": "resid10", "twonn_audio": "twonn_audio", "twonn_text": "twonn_text",
}  # fmt: skip
"""Probe → its column in the published table."""


def cells(folder: Path, reference: str, scores: str) -> Path:
    """Geometry against H over models and sets of the composition study, and over the published
    cells; what exchanged captions and independent similarities score."""
    found = _composition_cells()
    models, sets = ([key.split("/")[i] for key in found] for i in range(2))
    h = np.array([cell["h"] for cell in found.values()])
    correlations = {
        name: _association(np.array([cell[name] for cell in found.values()]), h, models, sets)
        for name in PROBES
    }
    judged = {p.parent.name: read_result(p) for p in sorted(Path(scores).glob("pairs-*/*.json"))}
    return write_json(
        folder / "cells.json",
        {
            "n_models": len(set(models)),
            "n_sets": len(set(sets)),
            "cells": found,
            "correlations": correlations,
            **_published(Path(reference)),
            "weights": next(iter(judged.values())).provenance["model"]["sha256"],
            "h_simulated": _independent_h(),
            "h": {name: r["h"].value for name, r in judged.items()},
            "h_swap": {name: r.details["h_swap"] for name, r in judged.items()},
            "sign_tests": {name: r.details["sign_test"]["h"] for name, r in judged.items()},
            "commands": [
                "residual-audio compa -m nano -d joined --root ESC50 --data-option of=esc50 "
                "--data-option folds=4 [--data-option kind=attribute] -o SCORES/pairs-…",
                "python benchmarks/claims.py cells REFERENCE SCORES",
            ],
        },
    )


def _composition_cells() -> dict[str, dict[str, float]]:
    """model/set → H and probes, of the models that were trained apart (not steps between them)."""
    found: dict[str, dict[str, float]] = {}
    for model in MODELS:
        for path in sorted(COMPOSITION.glob(f"geometry_{model}_*.json")):
            of = read_result(path)
            pairs = read_result(COMPOSITION / path.name.replace("geometry_", "compa_"))
            row = {"h": pairs["h"].value, **{name: of[name].value for name in PROBES}}
            found[f"{model}/{of.split}"] = {k: float(f"{v:.5g}") for k, v in row.items()}
    return found


def _association(
    x: np.ndarray, h: np.ndarray, models: Sequence[str], sets: Sequence[str]
) -> dict[str, float]:
    """Spearman's ρ over cells; p as if cells were independent, and p of whole models exchanged.

    A model is the same in every set: its cells move together, and three models have six orders.
    """
    every = correlation(x, h)
    names, kinds = sorted(set(models)), sorted(set(sets))
    place = {cell: i for i, cell in enumerate(zip(models, sets, strict=True))}
    reached = []
    for order in itertools.permutations(names):
        other = dict(zip(names, order, strict=True))
        moved = [(place[m, k], place[other[m], k]) for m in names for k in kinds]
        changed = np.empty_like(h)
        for to, of in moved:
            changed[to] = h[of]
        reached.append(abs(stats.spearmanr(x, changed).statistic) >= abs(every.value) - 1e-12)
    within, p_within = correlation_within(x, h, list(sets))
    return {
        "spearman": every.value,
        "pearson": correlation(x, h, "pearson").value,
        "p_cells": every.p_permutation,
        "p": float(np.mean(reached)),
        "pearson_within": within,
        "p_within": p_within,
    }


def _independent_h(n: int = 200_000) -> float:
    """H of similarities that are independent, drawn."""
    drawn = np.random.default_rng(0).random((n, 2, 2))
    return float(f"{outcomes(drawn)['h'].mean():.4g}")


def _published(reference: Path) -> dict[str, Any]:
    """The published cells once more: every correlation of Table 4 from Tables 2 and 3 with exact
    permutation p, of cells and of whole models, and with each benchmark's mean taken out."""
    known = read_json(reference / "published.json")["bahuguna_geometry"]
    scores = [_row(known["table2_compa"], row) for row in known["table2_compa"]["rows"]]
    probes = [_row(known["table3_probes"], row) for row in known["table3_probes"]["rows"]]
    h = np.array([float(_value(row, "H")) for row in scores])
    blocks = [str(_value(row, "bench")) for row in scores]
    of = {key: np.array([float(_value(row, c)) for row in probes]) for key, c in COLUMNS.items()}
    of["cosine"] = np.cos(np.radians(of["angle"]))
    models = [str(_value(row, "model")) for row in scores]
    return {
        "published": {key: _association(x, h, models, blocks) for key, x in of.items()},
        "published_l2_angle": correlation(of["l2"], of["angle"]).value,
    }


def _row(table: Mapping[str, Any], row: Any) -> dict[str, Any]:
    return row if isinstance(row, dict) else dict(zip(table["columns"], row, strict=True))


def _value(row: Mapping[str, Any], name: str) -> Any:
    return next(v for k, v in row.items() if k.lower().startswith(name.lower()))
