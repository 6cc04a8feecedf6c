"""Effects as tables: by unit, by class, and what predicts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from residual_audio.ablation.effects import Effects, by_class, summary
from residual_audio.ablation.interventions import Interventions
from residual_audio.ablation.power import changes_tested, power
from residual_audio.metrics.uncertainty import correlation, fdr
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, Unit, place_of


def effects_table(
    given: Interventions, units: Sequence[Unit], effects: Effects, level: str, seed: int = 0
) -> Table:
    """One row a unit, with where it is and paired intervals of every change; of a clip that was
    heard in windows the mean over them counts, once."""
    effects, groups = effects.by_clip(given.owners), given.of_clips(given.groups)
    changes = summary(effects, groups=groups, seed=seed)
    n = effects.delta(next(iter(effects.after))).shape[1]
    tested = changes_tested(effects, groups, seed)
    rows = [
        change.row() | {"n": n} | {name: float(p[i]) for name, p in tested.items()} | place_of(unit)
        for i, (change, unit) in enumerate(zip(changes, units, strict=True))
    ]
    name = f"ablation_{level}_{effects.method}"
    before = {m: float(v.mean()) for m, v in effects.before.items()}
    notes = (
        f"{n} clips, mode {effects.about.mode}",
        "before: " + ", ".join(f"{m} {v:.4f}" for m, v in before.items()),
        "changes are after − before; 95% intervals are paired and draw whole groups; p: sign flips "
        "of whole groups, q: false discovery rate over the units",
        power(effects, groups, tested.get("q_margin")).sentence(),
    )
    return from_rows(name, rows, f"Removing each {level}, {effects.method}", notes)


def class_table(given: Interventions, effects: Effects, level: str) -> Table | None:
    """The change of the margin in every class, in long form."""
    labels = given.labels
    if labels is None:
        return None
    groups = given.of_clips(given.groups)
    found = by_class(effects.by_clip(given.owners), given.of_clips(labels), groups=groups)
    rows = [
        {
            "unit": unit,
            "class": label,
            "d_margin": float(found.mean[u, c]),
            "d_margin_low": float(found.low[u, c]),
            "d_margin_high": float(found.high[u, c]),
            "n": found.n[c],
        }
        for u, unit in enumerate(effects.units)
        for c, label in enumerate(found.classes)
    ]
    note = "95% intervals: Student's t over the means of groups; of one group none is known"
    return from_rows(f"ablation_{level}_{effects.method}_classes", rows, notes=(note,))


def correlation_table(
    metrics: Mapping[str, FloatArray], effects: Sequence[Effects], seed: int = 0
) -> Table:
    """Spearman's ρ of every cheap metric (and every other method) with the importance of heads."""
    rows: list[dict[str, str | float]] = []
    importances = {
        f"{e.method} {m}": e.importance(m)
        for e in effects
        for m in ("correct", "margin", "loss", "shift")
        if m in e.after
    }
    for target, importance in importances.items():
        for name, values in {**metrics, **importances}.items():
            if name == target:
                continue
            found = correlation(values, importance, n_permutations=2000, seed=seed)
            rows.append(
                {
                    "importance": target,
                    "metric": name,
                    "spearman": found.value,
                    "p": found.p,
                    "p_permutation": found.p_permutation,
                    "n": found.n,
                }
            )
    for target in importances:
        own = [row for row in rows if row["importance"] == target]
        for row, q in zip(own, fdr([float(row["p_permutation"]) for row in own]), strict=True):
            row["q"] = float(q)
    note = "q: false discovery rate over the metrics beside one importance"
    caption = "Which cheap metric predicts importance?"
    return from_rows("ablation_correlations", rows, caption, (note,))
