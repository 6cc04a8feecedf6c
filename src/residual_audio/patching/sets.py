"""Many units at once: how much of the gap the first k of an order carry, sets by greedy search.

Units are put in order on one half of the groups and reported on the other, so that no set is judged
by the pairs it was chosen on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residual_audio.errors import InputError
from residual_audio.patching.exchanges import Exchanges
from residual_audio.patching.interchange import ExchangeWay, interchange
from residual_audio.patching.outcomes import effects_table
from residual_audio.patching.targets import Target, joined, parse_targets
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows
from residual_audio.types import UnitLike


@dataclass(frozen=True)
class SetSearch:
    """How far to search."""

    n_units: int = 8
    """Units of the largest set."""
    n_candidates: int = 16
    """Units that greedy search looks at: the best ones by themselves."""
    seed: int = 0


def set_curve(
    given: Exchanges,
    units: UnitLike | Sequence[UnitLike],
    way: ExchangeWay,
    search: SetSearch,
    progress: Progress = SILENT,
) -> Table:
    """Effect of the first k units of three orders: by own effect, by greedy search, random.

    Streams and the output stay out: each is everything before it, so a set with one is that one.
    """
    choosing, reporting = halves(given, search.seed)
    targets, alone = members(units, given)
    n = min(search.n_units, len(targets))
    single = interchange(choosing, targets, way, progress=progress)
    best = [targets[i] for i in np.argsort(-np.nan_to_num(single.weighted), kind="stable")]
    draw = np.random.default_rng(search.seed).permutation(len(targets))
    orders = {
        "by own effect": best[:n],
        "greedy": _greedy(choosing, best[: search.n_candidates], n, way, progress),
        "random": [targets[i] for i in draw[:n]],
    }
    rows = []
    for name, order in orders.items():
        sets = [joined(order[: k + 1], "+".join(t.name for t in order[: k + 1])) for k in range(n)]
        found = interchange(reporting, sets, way, progress=progress)
        table = effects_table(found, "curve", search.seed)
        for k, row in enumerate(table.rows()):
            numbers = {key: row[key] for key in row if key.startswith("effect") or key[0] == "n"}
            rows.append({"order": name, "units": k + 1, "added": order[k].name, **numbers})
    notes = (
        f"orders from {len(choosing)} exchanges, effects from {len(reporting)} others; "
        "no group is on both sides",
        *([f"in no set, being everything before them: {', '.join(alone)}"] if alone else []),
    )
    return from_rows("patching_sets", rows, "Exchanging the first k units of an order", notes)


def members(
    units: UnitLike | Sequence[UnitLike], given: Exchanges
) -> tuple[tuple[Target, ...], list[str]]:
    """What sets can be made of, and the names of what they cannot."""
    targets = parse_targets(units, given.model.encoder.sites)
    alone = [t for t in targets if t.stream is not None or t.unit.kind == "output"]
    found = tuple(t for t in targets if t not in alone)
    if not found:
        raise InputError(
            "sets are made of heads, sites and stages: a stream and the output are everything "
            "before them already"
        )
    return found, [t.name for t in alone]


def halves(given: Exchanges, seed: int) -> tuple[Exchanges, Exchanges]:
    """Two parts that share no group."""
    names = sorted(set(given.groups))
    if len(names) < 2:
        raise InputError(
            "a set is chosen on some pairs and judged on others: this needs two groups of pairs"
        )
    order = np.random.default_rng(seed).permutation(len(names))
    first = {names[i] for i in order[: len(names) // 2]}
    inside = [group in first for group in given.groups]
    return (
        given.part([i for i, here in enumerate(inside) if here]),
        given.part([i for i, here in enumerate(inside) if not here]),
    )


def _greedy(
    given: Exchanges,
    candidates: Sequence[Target],
    n: int,
    way: ExchangeWay,
    progress: Progress,
) -> list[Target]:
    """Each time the unit whose joining raises the effect most."""
    chosen: list[Target] = []
    left = list(candidates)
    while left and len(chosen) < n:
        sets = [joined([*chosen, one], f"{one.name} joins") for one in left]
        found = interchange(given, sets, way, progress=progress)
        chosen.append(left.pop(int(np.nanargmax(found.weighted))))
    return chosen
