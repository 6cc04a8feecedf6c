"""Runs side by side: what changes with depth, one line a run; and a page that holds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio import files
from residual_audio.analysis.columns import label
from residual_audio.analysis.run_comparison import RunComparison
from residual_audio.report.style import MARKERS, PAGE, save, series_colour, styled
from residual_audio.report.table_files import write_csv
from residual_audio.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = ("pca_99", "twonn", "ln_ratio", "evr_pc1", "pr", "fisher_trace", "ablation_drop")


def run_lines(found: RunComparison) -> Figure:
    """Block means against relative depth."""
    import matplotlib.pyplot as plt

    shown = [metric for metric in SHOWN if metric in found.blocks]
    n_rows = -(-len(shown) // 3)
    figure, grid = plt.subplots(n_rows, 3, figsize=(PAGE, 2.0 * n_rows), squeeze=False)
    for axes, metric in zip(grid.flat, shown, strict=False):
        for i, run in enumerate(found.names):
            part = found.blocks.where(found.blocks["run"] == run)
            axes.plot(
                part["depth"],
                part[metric],
                color=series_colour(i),
                marker=MARKERS[i % len(MARKERS)],
                label=run,
            )
        axes.set_title("accuracy lost without" if metric == "ablation_drop" else label(metric))
        axes.set_xlabel("relative depth")
    for axes in list(grid.flat)[len(shown) :]:
        axes.axis("off")
    grid.flat[0].legend()
    return figure


def write_comparison(found: RunComparison, out: Path) -> list[Path]:
    """Tables, figure and page below `out`."""
    written = [write_csv(out / f"{table.name}.csv", table) for table in found.tables if len(table)]
    with styled():
        written += save(run_lines(found), out / "runs.png")
    written.append(files.write_text(out / "runs.md", page_of(found)))
    return written


def page_of(found: RunComparison) -> str:
    """Markdown."""
    head = [
        f"# {' · '.join(found.names)}",
        f"{found.n_clips} clips of each run. "
        + (
            f"Same topology: by {found.place}, paired over heads."
            if found.same_topology
            else "Topologies differ: by quarters of the depth, not paired."
        ),
        "![block means against relative depth](runs.png)",
    ]
    return "\n\n".join([*head, *(_markdown(t) for t in found.tables if len(t))]) + "\n"


def _markdown(table: Table) -> str:
    lines = [f"## {table.caption}", "", "| " + " | ".join(table.columns) + " |"]
    lines.append("| " + " | ".join("---" for _ in table.columns) + " |")
    for row in table.rows():
        cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
