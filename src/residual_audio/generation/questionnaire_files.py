"""Questionnaires from one wide table: a row a person and system.

Columns: `participant` and `system` (or what else ratings files call them), and for each
questionnaire that was asked `sus_1` … `sus_10`, `ueqs_1` … `ueqs_8`, `csi_<factor>_1`,
`csi_<factor>_2` and `csi_<factor>_count`. Who a participant is is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.errors import InputError
from residual_audio.generation.ratings import LISTENER, SYSTEM
from residual_audio.metrics import questionnaires as metrics
from residual_audio.metrics.few_groups import cluster_t
from residual_audio.table import Table, read_csv
from residual_audio.types import Result, Score

Array = npt.NDArray[Any]
ITEMS: Mapping[str, tuple[str, ...]] = {
    "sus": tuple(f"sus_{i}" for i in range(1, 11)),
    "ueqs": tuple(f"ueqs_{i}" for i in range(1, 9)),
    "csi": tuple(f"csi_{factor}_{i}" for factor in metrics.CSI_FACTORS for i in (1, 2)),
}
COUNTS = tuple(f"csi_{factor}_count" for factor in metrics.CSI_FACTORS)


def score_questionnaires(path: Path) -> Result:
    """Mean scores of every system with Student's intervals over people, and reliability."""
    table = read_csv(path)
    lowered = {name.lower(): name for name in table.columns}
    person, system = (_column(path, lowered, names) for names in (LISTENER, SYSTEM))
    asked = [q for q, items in ITEMS.items() if any(item in lowered for item in items)]
    if not asked:
        raise InputError(
            f"'{path}' has no questionnaire: columns sus_1 …, ueqs_1 … or csi_exploration_1 …"
        )
    answers = {q: _answers(path, table, lowered, ITEMS[q]) for q in asked}
    systems = np.array([str(s) for s in table[system]])
    scores = [
        _score(f"{name}/{one}", values[systems == one], table[person][systems == one])
        for name, values in _scored(path, table, lowered, answers).items()
        for one in dict.fromkeys(systems.tolist())
    ]
    reliability = {name: asdict(metrics.cronbach_alpha(x)) for name, x in _scales(answers).items()}
    return Result(
        task="questionnaires",
        model="people",
        dataset=path.stem,
        split="all",
        scores=tuple(scores),
        details={
            "systems": list(dict.fromkeys(systems.tolist())),
            "n_people": len({str(p) for p in table[person]}),
            "reliability": reliability,
            "warnings": _warnings(reliability),
        },
        provenance=provenance.collect(intervals="95%, Student's t over people"),
    )


def _scored(
    path: Path, table: Table, lowered: Mapping[str, str], answers: Mapping[str, Array]
) -> dict[str, Array]:
    found: dict[str, Array] = {}
    if "sus" in answers:
        found["sus"] = metrics.sus(answers["sus"])
    if "ueqs" in answers:
        found |= {f"ueq_s_{k}": v for k, v in metrics.ueq_s(answers["ueqs"]).items()}
    if "csi" in answers:
        found["csi"] = metrics.csi(answers["csi"], _answers(path, table, lowered, COUNTS))
    return found


def _scales(answers: Mapping[str, Array]) -> dict[str, Array]:
    """What is meant to measure one thing, items pointing one way."""
    found: dict[str, Array] = {}
    for name, x in answers.items():
        if name == "ueqs":
            found |= {"ueq_s_pragmatic": x[:, :4], "ueq_s_hedonic": x[:, 4:]}
        else:
            found[name] = metrics.one_way(x, name)
    return found


def _answers(path: Path, table: Table, lowered: Mapping[str, str], items: Sequence[str]) -> Array:
    missing = [item for item in items if item not in lowered]
    if missing:
        raise InputError(f"'{path}' lacks the column {missing[0]}")
    columns = []
    for item in items:
        values = table[lowered[item]]
        try:
            columns.append([math.nan if v in ("", None) else float(v) for v in values])
        except ValueError as error:
            raise InputError(
                f"column {item} of '{path}' has an answer that is no number"
            ) from error
    return np.array(columns).T


def _score(name: str, values: Array, people: Array) -> Score:
    known = ~np.isnan(values)
    n = int(known.sum())
    if n == 0:
        return Score(name, math.nan, math.nan, math.nan, 0)
    low, high = cluster_t(values[known], [str(p) for p in people[known]])
    return Score(name, float(values[known].mean()), float(low), float(high), n)


def _column(path: Path, lowered: Mapping[str, str], names: Sequence[str]) -> str:
    found = next((lowered[name] for name in names if name in lowered), None)
    if found is None:
        raise InputError(f"'{path}' has no column like {', '.join(names[:4])}")
    return found


def _warnings(reliability: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{name}: Cronbach's α {of['alpha']:.2f} [{of['low']:.2f}, {of['high']:.2f}] is low: its "
        "items do not measure one thing here"
        for name, of in reliability.items()
        if of["alpha"] < 0.7
    ]
