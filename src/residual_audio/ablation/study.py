"""The ablation of a run as tables: effects by unit and class, what predicts them, curves, pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np

from residual_audio.ablation.direct import direct_ablation
from residual_audio.ablation.effects import Effects, by_class, summary
from residual_audio.ablation.exact import Mode, exact_ablation, reference_means
from residual_audio.ablation.first_order import first_order_ablation
from residual_audio.ablation.sets import (
    greedy_order,
    greedy_order_direct,
    interactions,
    pairs_of,
    removal_curve,
    removal_curve_direct,
)
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint import joint_of
from residual_audio.direct.joint_module import joint_head
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.judge.of_store import caption_judge, class_judge
from residual_audio.metrics.estimators import of_spectrum
from residual_audio.metrics.separability import class_codes, fisher
from residual_audio.metrics.spectra import eigenspectrum
from residual_audio.metrics.uncertainty import correlation
from residual_audio.passes.kept import Passes
from residual_audio.store import Store
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, Site, Unit, blocks_of, parse_unit, units_of

METHODS = ("direct", "first-order", "exact")
Method = Literal["direct", "first-order", "exact"]


@dataclass
class Study:
    """A store, the clips of it that are used, and (for all but `direct`) the model to run."""

    store: Store
    rows: np.ndarray
    judge: Judge
    passes: Passes | None = None
    """Features of exactly the clips `rows`."""

    @property
    def groups(self) -> list[str]:
        table = self.store.clips
        return [table["group"][i] or table["id"][i] for i in self.rows]

    @property
    def labels(self) -> list[str] | None:
        found = [self.store.clips["label"][i] for i in self.rows]
        return None if any(label is None for label in found) else found

    @cached_property
    def contributions(self) -> Contributions:
        return Contributions(self.store, self.rows, dtype=np.float32)

    def need_passes(self) -> Passes:
        if self.passes is None:
            raise InputError("this method runs the encoder: it needs the model and the data set")
        return self.passes


def study_of(store: Store, rows: np.ndarray | None = None, by: str = "labels") -> Study:
    """Answers by class prompts (`labels`) or by captions (`captions`)."""
    chosen = np.arange(len(store)) if rows is None else np.asarray(rows)
    judge = class_judge(store) if by == "labels" else caption_judge(store)
    return Study(store, chosen, judge.at(chosen))


def find_units(sites: Sequence[Site], wanted: Sequence[str]) -> dict[str, tuple[Unit, ...]]:
    """Levels (`head`, `attention` …) and single units or sets, by the name of their table."""
    found: dict[str, tuple[Unit, ...]] = {}
    for name in wanted:
        if name in ("head", "attention", "mlp", "stage"):
            found[name] = units_of(sites, name)
        else:
            found["set"] = (*found.get("set", ()), parse_unit(name, sites))
    return found


def run_method(
    study: Study,
    units: Sequence[Unit],
    method: Method,
    mode: Mode = "zero",
    *,
    seed: int = 0,
    batch_size: int = 8,
    progress: Callable[[int], None] | None = None,
) -> Effects:
    """Effects of one method on the clips of a study."""
    if method == "direct":
        head = joint_head(study.store)
        return direct_ablation(
            study.contributions, head.from_latent, study.judge, units, mode=mode, seed=seed
        )
    passes = study.need_passes()
    means = (
        reference_means(passes.model, passes.batches(size=batch_size)) if mode == "mean" else None
    )
    shuffled = seed if mode == "resample" else None
    batches = passes.batches(size=batch_size, seed=shuffled)
    if method == "exact":
        return exact_ablation(
            passes.model, batches, study.judge, units, mode=mode, means=means, progress=progress
        )
    if mode == "resample":
        raise InputError("first-order estimates 'zero' and 'mean' removal, not 'resample'")
    return first_order_ablation(
        passes.model,
        batches,
        study.judge,
        units,
        mode=cast(Literal["zero", "mean"], mode),
        means=means,
        measures=("margin", "loss"),
        progress=progress,
    )


def effects_table(study: Study, effects: Effects, level: str, seed: int = 0) -> Table:
    """One row a unit, with where it is and paired intervals of every change."""
    blocks = blocks_of(study.store.sites)
    rows = summary(effects, groups=study.groups, seed=seed)
    for row in rows:
        row |= place_of(row["unit"], blocks)
    name = f"ablation_{level}_{effects.method}"
    n = effects.delta(next(iter(effects.after))).shape[1]
    before = {m: float(v.mean()) for m, v in effects.before.items()}
    notes = (
        f"{n} clips, mode {effects.mode}, {effects.seconds:.1f} s",
        "before: " + ", ".join(f"{m} {v:.4f}" for m, v in before.items()),
        "changes are after − before; 95% intervals are paired and draw whole groups",
    )
    return from_rows(name, rows, f"Removing each {level}, {effects.method}", notes)


def place_of(unit: str, blocks: dict[tuple[int, int], int]) -> dict[str, Any]:
    """Stage, block and head of a unit by its name, and the number of its block over all stages."""
    parts = unit.split("+")[0].split("=")[-1].split(".")
    stage = int(parts[0][1:]) if parts[0][1:].isdigit() else -1
    block = int(parts[1][1:]) if len(parts) > 1 and parts[1][1:].isdigit() else -1
    head = int(parts[2][1:]) if len(parts) > 2 and parts[2][1:].isdigit() else -1
    return {
        "stage": stage,
        "block": block,
        "head": head,
        "block_index": blocks.get((stage, block), -1),
    }


def class_table(study: Study, effects: Effects, level: str) -> Table | None:
    """The change of the margin in every class, in long form."""
    if study.labels is None:
        return None
    names, delta = by_class(effects, study.labels)
    rows = [
        {"unit": unit, "class": label, "d_margin": float(delta[u, c])}
        for u, unit in enumerate(effects.units)
        for c, label in enumerate(names)
    ]
    return from_rows(f"ablation_{level}_{effects.method}_classes", rows)


def head_metrics(study: Study) -> dict[str, FloatArray]:
    """Cheap metrics of every head over the clips of the study, in order of computation.

    All but `fisher` are label-free. `text_alignment`: share of the contribution's variance, carried
    to the joint space, that lies in the span of the texts.
    """
    store, out = study.store, dict[str, list[FloatArray]]()
    labels = study.labels
    codes = class_codes(labels)[1] if labels is not None and len(set(labels)) > 1 else None
    for site in store.attention_sites:
        heads = np.asarray(store.heads(site))[study.rows].transpose(1, 0, 2)  # head clip d_head
        spectra = eigenspectrum(heads)
        found = of_spectrum(spectra)
        found["variance"] = spectra.sum(-1)
        found["norm"] = np.linalg.norm(heads, axis=-1).mean(-1)
        if codes is not None:
            found["fisher"] = fisher(heads, codes)
        for name, values in found.items():
            out.setdefault(name, []).append(np.asarray(values, np.float64))
    joined = {name: np.concatenate(values) for name, values in out.items()}
    if "direct" in store.kinds:
        joined |= _direct_metrics(study)
    return joined


def _direct_metrics(study: Study) -> dict[str, FloatArray]:
    parts = study.contributions
    step = joint_of(study.store).derivative(parts.latent.mean(0)[None])  # latent joint
    texts = study.judge.texts.numpy().astype(np.float64)
    _, s, v = np.linalg.svd(texts - texts.mean(0), full_matrices=False)
    span = v[s > 1e-6 * s[0]]
    found: dict[str, list[float]] = {"direct_norm": [], "direct_spread": [], "text_alignment": []}
    for site in study.store.attention_sites:
        for head in site.heads:
            own = parts.head(head).astype(np.float64)
            centred = own - own.mean(0)
            joint = centred @ step
            whole = float((joint**2).sum())
            inside = float(((joint @ span.T) ** 2).sum())
            found["direct_norm"].append(float(np.linalg.norm(own, axis=1).mean()))
            found["direct_spread"].append(float(np.sqrt((centred**2).sum(1).mean())))
            found["text_alignment"].append(inside / whole if whole > 0 else 0.0)
    return {name: np.array(values) for name, values in found.items()}


def correlation_table(
    metrics: dict[str, FloatArray], effects: Sequence[Effects], seed: int = 0
) -> Table:
    """Spearman's ρ of every cheap metric (and every other method) with the importance of heads."""
    rows = []
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
    return from_rows("ablation_correlations", rows, "Which cheap metric predicts importance?")


def curve_tables(
    study: Study,
    metrics: dict[str, FloatArray],
    importance: dict[str, FloatArray],
    *,
    exact: bool,
    counts: Sequence[int] | None = None,
    seed: int = 0,
) -> Table:
    """Accuracy against heads removed (least important first), for every way to order them."""
    units = units_of(study.store.sites, "head")
    grid = list(counts or np.unique(np.linspace(0, len(units), 13).astype(int)).tolist())
    orders: dict[str, Sequence[int]] = {
        name: np.argsort(values, kind="stable").tolist() for name, values in importance.items()
    }
    for name in ("fisher", "direct_spread", "shannon_entropy", "text_alignment"):
        if name in metrics:
            orders[name] = np.argsort(np.nan_to_num(metrics[name]), kind="stable").tolist()
    orders["random"] = np.random.default_rng(seed).permutation(len(units)).tolist()
    rows = []
    if exact:
        passes = study.need_passes()
        means = reference_means(passes.model, passes.batches())
        found = greedy_order(
            passes.model, passes.batches, study.judge, units, mode="mean", means=means, step=23
        )
        orders["greedy"] = found
        for name, order in orders.items():
            curve = removal_curve(
                passes.model,
                passes.batches,
                study.judge,
                units,
                order,
                grid,
                mode="mean",
                means=means,
                groups=study.groups,
            )
            rows += [{"order": name, "method": "exact", **row} for row in curve]
    else:
        head = joint_head(study.store)
        parts = study.contributions
        step = max(1, len(units) // 46)
        orders["greedy"] = greedy_order_direct(
            parts, head.from_latent, study.judge, units, step=step
        )
        for name, order in orders.items():
            curve = removal_curve_direct(
                parts, head.from_latent, study.judge, units, order, grid, groups=study.groups
            )
            rows += [{"order": name, "method": "direct", **row} for row in curve]
    name = f"ablation_curve_{'exact' if exact else 'direct'}"
    return from_rows(name, rows, "Heads removed by the mean, least important first")


def pair_table(study: Study, effects: Effects, top: int = 12, mode: Mode = "zero") -> Table:
    """Interactions of the most important heads, by the method of `effects`."""
    order = np.argsort(-effects.importance("margin"), kind="stable")[:top]
    units = [parse_unit(effects.units[i], study.store.sites) for i in order]
    pairs = run_method(study, pairs_of(units), cast(Method, effects.method), mode)
    return from_rows(f"ablation_pairs_{effects.method}", interactions(effects, pairs))


def ablate(
    study: Study,
    *,
    levels: Sequence[str] = ("head", "attention"),
    methods: Sequence[Method] = ("direct",),
    mode: Mode = "zero",
    curves: bool = True,
    pairs: int = 0,
    seed: int = 0,
    batch_size: int = 8,
    progress: Callable[[str], None] | None = None,
) -> list[Table]:
    """Everything above as tables, in the order in which a reader wants them."""
    tables: list[Table] = []
    heads: list[Effects] = []
    for level, units in find_units(study.store.sites, levels).items():
        for method in methods:
            if progress is not None:
                progress(f"{len(units)} × {level}, {method}")
            found = run_method(study, units, method, mode, seed=seed, batch_size=batch_size)
            tables.append(effects_table(study, found, level, seed))
            classes = class_table(study, found, level)
            if classes is not None:
                tables.append(classes)
            if level == "head":
                heads.append(found)
    if heads:
        metrics = head_metrics(study)
        tables.append(correlation_table(metrics, heads, seed))
        units = units_of(study.store.sites, "head")
        names = [unit.name for unit in units]
        tables.append(Table("ablation_metrics", {"unit": np.array(names, object), **metrics}))
        if pairs:
            tables.append(pair_table(study, heads[-1], pairs, mode))
        if curves:
            importance = {f"{e.method} margin": e.importance("margin") for e in heads}
            exact = "exact" in methods
            if progress is not None:
                progress("curves of removal")
            tables.append(curve_tables(study, metrics, importance, exact=exact, seed=seed))
    return tables
