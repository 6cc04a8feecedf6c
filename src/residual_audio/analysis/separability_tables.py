"""What heads know about classes: Fisher ratios, probes, silhouettes, activation by class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from residual_audio.analysis.source import Source, each_site
from residual_audio.data.splits import grouped_folds
from residual_audio.engine.jobs import on_cores
from residual_audio.errors import DatasetError, InputError
from residual_audio.metrics.estimators import of_labels
from residual_audio.metrics.proportions import share_interval
from residual_audio.metrics.separability import (
    LabelledUnits,
    class_activation,
    class_codes,
    fisher,
    selectivity,
)
from residual_audio.metrics.spectra import isometry
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table
from residual_audio.types import Clip

MAX_SILHOUETTE_CLIPS = 2000


@dataclass(frozen=True)
class Labels:
    """Labelled clips of a store, and how they are divided for probes."""

    rows: Array
    """Which clips have a label."""
    names: tuple[str, ...]
    codes: Array
    folds: Array | None
    how: str
    """Where the folds come from, or why there are none."""
    groups: list[str]


def read_labels(store: Source, seed: int = 0) -> Labels:
    """Labels of a store; raises an error where there are not two classes."""
    label = store.clips["label"]
    rows = np.flatnonzero([value is not None for value in label])
    if not len(rows):
        raise InputError("no clip of this store has a label")
    names, codes = class_codes(label[rows])
    if len(names) < 2:
        raise InputError(f"all labelled clips are '{names[0]}': two classes are needed")
    ids, group, fold = (store.clips[c][rows] for c in ("id", "group", "fold"))
    groups = [str(i if g is None else g) for i, g in zip(ids, group, strict=True)]
    official = [value for value in fold if value is not None]
    if len(official) == len(rows) and len(set(official)) > 1:
        return Labels(rows, names, codes, fold.astype(np.int64), "official folds", groups)
    clips = [
        Clip(str(i), label=names[c], group=g) for i, c, g in zip(ids, codes, groups, strict=True)
    ]
    try:
        folds = grouped_folds(clips, 5, seed)
    except DatasetError as error:
        return Labels(rows, names, codes, None, str(error), groups)
    return Labels(rows, names, codes, folds, f"5 grouped folds (seed {seed})", groups)


def separability_tables(
    store: Source, *, seed: int = 0, progress: Progress = SILENT
) -> tuple[Table, Table]:
    """`fisher` (one row a head) and `class_activation` (one row a head and class)."""
    labels = read_labels(store, seed)
    rng = np.random.default_rng(seed)
    sample = _sample(labels, rng)
    parts = []
    n_heads = sum(site.n_heads for site in store.attention_sites)
    progress.step("analyse: separability", n_heads, "heads")
    for part in each_site(store):
        x = part.x[:, labels.rows]
        jobs = [
            (part.heads[h], x[h : h + 1], isometry(part.w_out[h : h + 1]))
            for h in range(len(part.heads))
        ]
        rows = on_cores(lambda job: _one_head(job[1], job[2], labels, sample), jobs)
        columns = {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}
        parts.append({"head_id": np.array(part.names, dtype=object)} | columns)
        progress.advance(len(rows))
    columns = {key: np.concatenate([p[key] for p in parts]) for key in parts[0]}
    norms, deviations = columns.pop("norms"), columns.pop("deviations")
    correct = columns.pop("correct")
    table = {"head_id": columns.pop("head_id")} | columns
    table["preferred_class"] = np.array(
        [labels.names[i] for i in table.pop("preferred")], dtype=object
    )
    if labels.folds is not None:
        ends = np.array([share_interval(right, labels.groups) for right in correct])
        table |= {"probe_low": ends[:, 0], "probe_high": ends[:, 1]}
    notes = (
        f"{len(labels.rows)} labelled clips, {len(labels.names)} classes",
        f"probe: {labels.how}; control: classes drawn at random for whole groups",
        f"silhouette: {len(sample)} clips",
    )
    return (
        Table("fisher", table, "How well each head separates the classes.", notes),
        _activation_table(table["head_id"], labels, norms, deviations, notes[:1]),
    )


def _sample(labels: Labels, rng: np.random.Generator) -> Array:
    n = len(labels.rows)
    return np.sort(rng.permutation(n)[:MAX_SILHOUETTE_CLIPS])


def _one_head(x: Array, root: Array, labels: Labels, sample: Array) -> dict[str, Array]:
    codes = labels.codes
    after = x.astype(np.float64) @ root
    norms = class_activation(after, codes)
    deviations = class_activation(after, codes, centre=True)
    choice, preferred = selectivity(deviations)
    units = LabelledUnits(x, codes, labels.folds, sample, np.asarray(labels.groups))
    out = of_labels(units) | {
        "projected_fisher_trace": fisher(after, codes),
        "selectivity": choice,
        "preferred": preferred,
        "norms": norms,
        "deviations": deviations,
        "correct": np.zeros((1, len(codes)), dtype=bool),
    }
    if units.probe is not None:
        out["correct"], out["probe_chance"] = units.probe.correct, np.array([units.probe.chance])
    return out


def _activation_table(
    ids: Array, labels: Labels, norms: Array, deviations: Array, notes: tuple[str, ...]
) -> Table:
    n_heads, n_classes = norms.shape
    return Table(
        "class_activation",
        {
            "head_id": np.repeat(ids, n_classes),
            "class": np.tile(np.array(labels.names, dtype=object), n_heads),
            "norm": norms.ravel(),
            "deviation": deviations.ravel(),
        },
        "Mean norm of each head's projected output over the clips of each class; deviation: "
        "measured from the head's mean over all clips.",
        notes,
    )
