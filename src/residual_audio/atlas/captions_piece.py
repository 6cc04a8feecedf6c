"""What the answer says of captions: how often the right one comes first, before and after gains."""

from __future__ import annotations

from typing import Any

from residual_audio.table import Table

WAYS = {"t2a": "captions find their clip", "a2t": "clips find one of their captions"}


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
    parts = [_direction(row) for row in moved if row["method"] == most]
    return (
        f"Captions, among those of one fold: {'; '.join(parts)} (R@1 as the model is, and after "
        f"{most} fitted to the captions of other folds)."
    )


def _direction(row: dict[str, Any]) -> str:
    points = [100 * float(row[name]) for name in ("gain", "gain_low", "gain_high")]
    gain, low, high = (f"{value:+.1f}".replace("-", "−") for value in points)
    return (
        f"{WAYS[row['direction']]} {100 * float(row['before']):.1f}% → "
        f"{100 * float(row['recall']):.1f}% of {int(row['n'])} times ({gain} points, 95% interval "
        f"{low} to {high}; {100 * float(row['chance']):.1f}% by chance)"
    )
