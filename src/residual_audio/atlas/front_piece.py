"""The front of a run: gained here, lost elsewhere, size of the edit; every edit is a point."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from residual_audio.report.run_tables import MissingTable, Tables


class FrontLine(TypedDict):
    """One family of edits, from nothing to all of it."""

    family: str
    points: list[list[float]]
    """[setting, gained here, lost elsewhere, its standard error, how far embeddings move]"""


def front_piece(tables: Tables) -> list[FrontLine] | None:
    """`tables/front.csv`, as `residual-audio reweight front` leaves it."""
    needed = ("family", "setting", "top1", "zero_shot", "lost", "lost_error", "shift")
    try:
        table = tables.need("front", *needed)
    except MissingTable:
        return None
    rows = list(table.rows())
    lines: dict[str, list[list[float]]] = {}
    for row in rows:
        point = [row["setting"], row["top1"] - row["zero_shot"]]
        point += [row["lost"], row["lost_error"], row["shift"]]
        if np.isfinite(point).all():
            lines.setdefault(str(row["family"]), []).append([round(float(v), 6) for v in point])
    found: list[FrontLine] = [{"family": k, "points": v} for k, v in lines.items()]
    return found or None
