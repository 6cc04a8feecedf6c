"""The page of one head: its components with both ends, classes, cost, attention, neighbours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.atlas.components import EndWords, HeadComponents
from residual_audio.atlas.media import Media
from residual_audio.atlas.numbers import fold_values
from residual_audio.atlas.packed import bytes_between
from residual_audio.atlas.shown_attention import AttentionMaps
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.store import Store
from residual_audio.table import Table
from residual_audio.types import FloatArray

Rows = npt.NDArray[np.integer]
N_NEAREST = 8
N_EIGENVALUES = 48


class HeadPages:
    """What the pages of all heads share, read once."""

    def __init__(self, store: Store, tables: Tables, media: Media) -> None:
        self._store = store
        self._tables = tables
        self._media = media
        self._ids = [str(head) for head in store.all_heads]
        self._maps = AttentionMaps(store)

    def piece(
        self, one: HeadComponents, words: Sequence[Mapping[str, EndWords]] | None
    ) -> dict[str, Any]:
        """All that the page of a head shows beyond the table of numbers."""
        name = str(one.head)
        scale = np.sqrt(np.maximum(one.spectrum.eigenvalues, 1e-300))
        classes = self._classes(one.coordinates[:, : one.n_shown] / scale[: one.n_shown])
        return {
            "id": name,
            "shares": digits(one.shares[:N_EIGENVALUES]),
            "n_varying": len(one.spectrum.eigenvalues),
            "components": [
                {
                    "share": float(one.shares[c]),
                    "ends": {
                        sign: {
                            "words": None if words is None else _words(words[c][sign]),
                            "clips": [self._clip(name, c, row, one, scale[c]) for row in rows],
                        }
                        for sign, rows in one.ends(c).items()
                    },
                    "classes": classes[c],
                }
                for c in range(one.n_shown)
            ],
            "by_class": self._by_class(name),
            "attention": self._maps.of(one.head),
            "nearest": self._nearest(name),
            "gains": self._gains(name),
        }

    def _clip(
        self, head: str, c: int, row: int, one: HeadComponents, scale: float
    ) -> dict[str, object]:
        found: dict[str, Any] = {"row": row, "score": float(one.coordinates[row, c] / scale)}
        response = self._media.response(head, c, row)
        if response is not None:
            top = float(np.abs(response).max()) or 1.0
            found["response"] = bytes_between(response, -top, top)
        return found

    def _classes(self, along: FloatArray) -> list[list[list[Any]]]:
        """Of each component [clip, component]: class, clips, mean and the middle 80% of its clips,
        from low to high, in σ."""
        found = [(name, len(at), middle(along[at])) for name, at in self._members.items()]
        return [
            sorted(
                ([name, n, *digits(three[:, c])] for name, n, three in found),
                key=lambda row: row[2],
            )
            for c in range(along.shape[1])
        ]

    @cached_property
    def _members(self) -> dict[str, Rows]:
        labels = self._store.clips["label"]
        names = sorted({str(label) for label in labels if label is not None})
        return {n: np.flatnonzero([label == n for label in labels]) for n in names}

    def _by_class(self, name: str) -> dict[str, object] | None:
        """Change of the margin of each class without the head; the most exact method there is."""
        for method in ("exact", "direct", "first_order"):
            table = self._grouped(f"ablation_head_{method}_classes", "unit").get(name)
            if table is not None:
                order = np.argsort(table["d_margin"])
                ends = [f"d_margin{e}" for e in ("", "_low", "_high")]
                known = [c for c in ends if c in table]
                rows = [
                    [str(table["class"][i]), *digits([table[c][i] for c in known])] for i in order
                ]
                return {"method": method, "rows": rows}
        return None

    def _nearest(self, name: str) -> dict[str, object] | None:
        if self._similarity is None:
            return None
        how, matrix = self._similarity
        row = matrix[self._ids.index(name)]
        order = [i for i in np.argsort(-row, kind="stable") if self._ids[i] != name]
        rows = [[self._ids[i], *digits([row[i]])] for i in order[:N_NEAREST]]
        return {"how": how, "rows": rows}

    @cached_property
    def _similarity(self) -> tuple[str, FloatArray] | None:
        """The measure and [head, head], −1 where a pair has none."""
        try:
            table = self._tables["similarity"]
        except MissingTable:
            return None
        how = next((c for c in ("cka", "spectral_cosine") if c in table), None)
        ends = [c for c in table.columns if c.startswith("head")][:2]
        if how is None or len(ends) < 2:
            return None
        place = {name: i for i, name in enumerate(self._ids)}
        matrix = np.full((len(place), len(place)), -1.0)
        left, right = (np.array([place.get(str(n), -1) for n in table[e]]) for e in ends)
        keep = (left >= 0) & (right >= 0)
        values = np.nan_to_num(table[how].astype(np.float64), nan=-1.0)[keep]
        matrix[left[keep], right[keep]] = values
        matrix[right[keep], left[keep]] = values
        return how, matrix

    def _gains(self, name: str) -> list[float | None] | None:
        found = self._gains_by_fold
        return None if found is None else digits(found[:, self._ids.index(name)])

    @cached_property
    def _gains_by_fold(self) -> FloatArray | None:
        try:
            table = self._tables["gains_units"]
        except MissingTable:
            return None
        return fold_values(table, "mean_gain", self._ids) if "mean_gain" in table else None

    def _grouped(self, name: str, key: str) -> dict[str, Table]:
        """A long table cut by a column, once."""
        if name not in self._cut:
            try:
                table = self._tables[name]
                names = np.array([str(n) for n in table[key]])
                order = np.argsort(names, kind="stable")
                starts = np.flatnonzero(np.r_[True, names[order][1:] != names[order][:-1]])
                parts = np.split(order, starts[1:])
                self._cut[name] = {names[part[0]]: table.where(part) for part in parts}
            except MissingTable:
                self._cut[name] = {}
        return self._cut[name]

    @cached_property
    def _cut(self) -> dict[str, dict[str, Table]]:
        return {}


def middle(values: FloatArray) -> FloatArray:
    """[3, column]: mean, 10% and 90% quantile; `np.quantile` takes longer than the rest of the
    page for thousands of small groups."""
    ordered = np.sort(values, axis=0)

    def quantile(share: float) -> FloatArray:
        place = share * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    return np.stack([values.mean(0), quantile(0.1), quantile(0.9)])


def _words(words: EndWords) -> dict[str, object]:
    return {
        "texts": list(words.texts),
        "fit_z": round(words.fit_z, 2),
        "coherence_z": round(words.coherence_z, 2),
        "at_chance": words.at_chance,
    }


def digits(values: npt.ArrayLike) -> list[float | None]:
    # numbers of Python are printed several times as fast as those of NumPy
    numbers = np.asarray(values, np.float64).tolist()
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in numbers]
