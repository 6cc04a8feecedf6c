"""How a comparison of adaptations is shown on the terminal: the answer, then a row a method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from residual_audio.cli.output import print_table, say

if TYPE_CHECKING:
    from residual_audio.adaptation.harder_splits import OnSplit
    from residual_audio.adaptation.verdicts import Verdict

COLUMNS = (
    "method", "numbers", "top-1", "gain (95%)", "units", "heads", "moved", "energy", "distance",
    "negative", "stability", "always–ever", "capped",
)  # fmt: skip


def answer(row: Verdict, n_classes: int) -> str:
    """What a method gained, and what moved for it."""
    clear = "" if row["gain_low"] > 0 or row["gain_high"] < 0 else ", not clear of 0,"
    moved = "nothing moved"
    if row.get("units_moved"):
        moved = f"{row['units_moved']:.0f} units moved, {row['heads_moved']:.0f} of them heads"
        if not math.isnan(row["stability"]):
            moved += f", edits of two folds have a cosine of {row['stability']:.2f}"
    return (
        f"{row['method']}: top-1 {row['top1']:.1%}, {_points(row)} points{clear} over the model as "
        f"it is (n = {row['n']}, chance {1 / n_classes:.1%}); {moved}"
    )


def show_verdicts(rows: Sequence[Verdict], title: str) -> None:
    """Every method in a line; what it costs elsewhere, where that was measured. The file has more
    columns, and all digits."""
    fitted = [row for row in rows if "failed" not in row]
    costs = any(not math.isnan(row.get("lost", math.nan)) for row in fitted)
    columns = [*COLUMNS, *(["lost elsewhere"] if costs else [])]
    print_table(columns, [_line(row, costs) for row in fitted], title)
    for row in rows:
        if "failed" in row:
            say(f"{row['method']} could not be fitted: {row['failed']}")


def show_splits(rows: Sequence[OnSplit], title: str) -> None:
    """A line a method, a column a split."""
    splits = list(dict.fromkeys(row["split"] for row in rows))
    cells = {(row["method"], row["split"]): f"{row['top1']:.1%}, {_points(row)}" for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [[method, *(cells.get((method, split), "") for split in splits)] for method in methods]
    print_table(["top-1, gain (95%)", *splits], lines, title)


def _line(row: Verdict, costs: bool) -> list[str]:
    cells = [row["method"], f"{row['parameters']:,}", f"{row['top1']:.1%}", _points(row)]
    if "units_moved" in row:
        cells += [f"{row['units_moved']:.0f}", f"{row['heads_moved']:.0f}"]
        cells += [f"{row['moved']:,.0f}", f"{row['energy']:.2f}"]
        cells += [f"{row['distance']:.2f}", f"{row['negative']:.0%}", f"{row['stability']:.2f}"]
        cells += [f"{row['always']}–{row['ever']}"]
    else:
        cells += [""] * 8
    cells.append(str(row["capped"]))
    if costs:
        lost = row.get("lost", math.nan)
        error = 100 * row.get("lost_error", math.nan)
        cells.append("" if math.isnan(lost) else f"{100 * lost:.1f} ± {error:.1f}")
    return cells


def _points(row: Verdict | OnSplit) -> str:
    low, high = 100 * row["gain_low"], 100 * row["gain_high"]
    return f"{100 * row['gain']:+.1f} [{low:+.1f}, {high:+.1f}]"
