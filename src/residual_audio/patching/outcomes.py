"""What exchanges did: every measure before and after, normalised so that 0 is the corrupt clip and
1 the clean one, with intervals over groups of pairs and the false discovery rate over units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residual_audio.metrics.bootstrap import bootstrap_mean
from residual_audio.metrics.uncertainty import (
    Correlation,
    correlation,
    fdr,
    interval,
    n_groups,
    sign_flip,
)
from residual_audio.patching.targets import Target
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, place_of

MIN_GAP = 1e-3
"""Clean and corrupt clips whose measures are closer than this have no gap to be part of."""


@dataclass(frozen=True)
class Interchanged:
    """The measure of every exchange: of both clips as they are, and with each target exchanged."""

    targets: tuple[Target, ...]
    pairs: tuple[str, ...]
    """[exchange]"""
    groups: tuple[str, ...]
    clean: FloatArray
    """[exchange]"""
    corrupt: FloatArray
    patched: FloatArray
    """[target, exchange]"""
    method: str
    path: str
    measured_by: str
    seconds: float = 0.0
    min_gap: float = MIN_GAP

    @property
    def gap(self) -> FloatArray:
        """[exchange] clean − corrupt."""
        return self.clean - self.corrupt

    @property
    def used(self) -> np.ndarray:
        """[exchange] whether there is a gap to be part of."""
        return np.abs(self.gap) >= self.min_gap

    @property
    def changes(self) -> FloatArray:
        """[target, exchange] patched − corrupt, as measured."""
        return self.patched - self.corrupt

    @property
    def effects(self) -> FloatArray:
        """[target, exchange] 0 is the corrupt clip, 1 the clean one; NaN where there is no gap."""
        gap = np.where(self.used, self.gap, np.nan)
        return self.changes / gap

    @property
    def weighted(self) -> FloatArray:
        """[target] mean effect, an exchange counting by its gap: Σ sign·change / Σ |gap|."""
        gap = np.where(self.used, self.gap, 0.0)
        total = np.abs(gap).sum()
        directed = (self.changes * np.sign(gap)).sum(1)
        return directed / total if total else np.full(len(self.targets), np.nan)

    @property
    def mean(self) -> FloatArray:
        """[target] mean effect over the exchanges that have a gap."""
        effects = self.effects[:, self.used]
        return effects.mean(1) if effects.size else np.full(len(self.targets), np.nan)

    def left_out(self) -> list[str]:
        """Pairs of exchanges without a gap."""
        return list(dict.fromkeys(p for p, u in zip(self.pairs, self.used, strict=True) if not u))


def effects_table(found: Interchanged, name: str, seed: int = 0) -> Table:
    """One row a target: mean effect and its interval, by gap, raw, p, q and n."""
    used, groups = found.used, np.array(found.groups, object)
    effects = found.effects[:, used]
    mean, weighted = found.mean, found.weighted
    n = n_groups(int(used.sum()), groups[used]) if used.any() else 0
    low = high = gap_low = gap_high = p = np.full(len(found.targets), np.nan)
    if n >= 2:
        draw, own = np.random.default_rng(seed), groups[used].tolist()
        low, high = bootstrap_mean(effects.T, rng=draw, groups=own)
        directed, gaps = (found.changes * np.sign(found.gap))[:, used].T, np.abs(found.gap[used])
        gap_low, gap_high = interval(
            lambda counts: counts @ directed / (counts @ gaps)[:, None], len(gaps), groups=own,
            seed=seed,
        )  # fmt: skip
        p = sign_flip(directed, groups=own, seed=seed)
    q = fdr(p)
    rows = [
        {
            "unit": target.name,
            **_where(target),
            "effect": float(mean[i]),
            "effect_low": float(low[i]),
            "effect_high": float(high[i]),
            "effect_by_gap": float(weighted[i]),
            "effect_by_gap_low": float(gap_low[i]),
            "effect_by_gap_high": float(gap_high[i]),
            "change": float(found.changes[i].mean()),
            "p": float(p[i]),
            "q": float(q[i]),
            "n": int(used.sum()),
            "n_groups": n,
        }
        for i, target in enumerate(found.targets)
    ]
    return from_rows(name, rows, _caption(found), notes_of(found))


def _where(target: Target) -> dict[str, int | float]:
    place: dict[str, int | float] = dict(place_of(target.unit))
    if target.stream is not None:
        place["block_index"] = target.stream
    if target.between is not None:
        place |= {"start_s": target.between[0], "end_s": target.between[1]}
    return place


def _caption(found: Interchanged) -> str:
    path = "through everything after" if found.path == "total" else "straight to the latent"
    return f"Exchanging each unit ({found.method}, {path}), measure {found.measured_by}"


def notes_of(found: Interchanged) -> tuple[str, ...]:
    """What to know before believing the numbers."""
    used, out = found.used, found.left_out()
    notes = [
        f"{int(used.sum())} of {len(used)} exchanges, {found.seconds:.1f} s; "
        "0 is the corrupt clip, 1 the clean one; 95% intervals draw whole groups",
        "p: signs of whole groups are flipped (change towards the clean clip); "
        "q: Benjamini–Hochberg over the rows",
    ]
    if len(found.clean):
        notes.append(f"mean gap {float(np.abs(found.gap).mean()):.4g} between clean and corrupt")
    if out:
        named = ", ".join(out[:5]) + (f" and {len(out) - 5} more" if len(out) > 5 else "")
        notes.append(f"left out, gap below {found.min_gap:g}: {named}")
    if n_groups(int(used.sum()), np.array(found.groups, object)[used]) < 2:
        notes.append("no interval or p value: there is only one group of pairs")
    return tuple(notes)


def pairs_table(found: Interchanged, name: str) -> Table:
    """One row an exchange: the measure of both clips, and whether there is a gap."""
    columns = {
        "pair": np.array(found.pairs, object),
        "group": np.array(found.groups, object),
        "clean": found.clean,
        "corrupt": found.corrupt,
        "gap": found.gap,
        "used": found.used.astype(int),
    }
    return Table(name, columns, "The measure of both clips of every exchange")


def agreement(a: Interchanged, b: Interchanged, seed: int = 0) -> Correlation:
    """Rank correlation over targets of the effects by gap of two methods."""
    return correlation(a.weighted, b.weighted, seed=seed, n_permutations=2000)


def concatenate(parts: Sequence[Interchanged]) -> Interchanged:
    """Exchanges of several runs of the same targets, as one."""
    first = parts[0]
    return Interchanged(
        first.targets,
        tuple(pair for part in parts for pair in part.pairs),
        tuple(group for part in parts for group in part.groups),
        np.concatenate([part.clean for part in parts]),
        np.concatenate([part.corrupt for part in parts]),
        np.concatenate([part.patched for part in parts], axis=1),
        first.method,
        first.path,
        first.measured_by,
        sum(part.seconds for part in parts),
        first.min_gap,
    )
