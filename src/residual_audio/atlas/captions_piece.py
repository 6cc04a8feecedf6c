"""What the answer says of captions: how often the right one comes first, before and after gains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from residual_audio.table import Table

WAYS = {
    "t2a": "the right clip comes first for {before:.1%} of {n:,} captions",
    "a2t": "one of its captions comes first for {before:.1%} of {n:,} clips",
}


def retrieval_sentence(table: Table | None) -> str:
    """Both directions of the method with most to move; nothing where there are no captions."""
    if table is None or "direction" not in table:
        return ""
    rows = [
        row
        for row in table.rows()
        if (str(row["fold"]), int(row["k"]), row["count"]) == ("all", 1, "shared")
    ]
    moved = [row for row in rows if row["kind"] == "residual"]
    if not moved:
        return ""
    most = max(moved, key=lambda row: int(row["parameters"]))["method"]
    own = [row for row in moved if row["method"] == most]
    found = " and ".join(
        WAYS[row["direction"]].format(before=float(row["before"]), n=int(row["n"])) for row in own
    )
    chance = " and ".join(dict.fromkeys(f"{float(row['chance']):.1%}" for row in own))
    changes = " and ".join(_change(row) for row in own)
    return (
        f"Among those of one fold, {found} (by chance {chance}). {most}, fitted to the captions of "
        f"other folds, changes that by {changes}."
    )


def _change(row: Mapping[str, Any]) -> str:
    points = [100 * float(row[name]) for name in ("gain", "gain_low", "gain_high")]
    gain, low, high = (
        f"{value:+.1f}".replace("-", "−").replace("+0.0", "0.0").replace("−0.0", "0.0")
        for value in points
    )
    return f"{gain} points (95% interval {low} to {high})"
