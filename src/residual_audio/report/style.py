"""How figures look: colour-blind safe, readable at column width, one colour a stage.

Widths are those of two-column papers: one column 3.5 in, both 7 in. Text is 7 to 8 pt at that size.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.5, 7.0

# Okabe & Ito (2008): told apart with any kind of colour blindness, and in grey by their order
STAGE_COLOURS = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # green
    "#CC79A7",  # purple
    "#56B4E9",  # light blue
    "#D55E00",  # red
    "#F0E442",  # yellow
    "#999999",  # grey
)
SERIES_COLOURS = tuple(STAGE_COLOURS[i] for i in (0, 1, 2, 5, 3, 4))
MARKERS = ("o", "s", "^", "D", "v", "P", "*")
NEUTRAL = "#999999"
CONTROL = "#555555"
"""Random orders and other things to compare with."""
HEAT = "viridis"
DIVERGING = "PuOr"

RC: Any = {
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 1.0,
    "lines.markersize": 3,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw without a screen, in this style, and leave no figure open."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # nothing of a figure is garbage before it is closed: a tenth of the time went into looking
    collecting = gc.isenabled()
    gc.disable()
    with plt.rc_context(RC):
        try:
            yield
        finally:
            plt.close("all")
            if collecting:
                gc.enable()


def panels(n: int, height: float = 1.75) -> tuple[Figure, list[Axes]]:
    """A page-wide grid of n axes, `height` inches a row, with as few empty places as can be."""
    import matplotlib.pyplot as plt

    columns = n if n <= 4 else min((4, 3, 5), key=lambda c: -n % c)
    rows = -(-n // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(PAGE, height * rows + 0.3), squeeze=False)
    for axes in grid.flat[n:]:
        axes.axis("off")
    return figure, list(grid.flat[:n])


def series_colour(i: int) -> str:
    """The colour of the i-th of several lines that are not stages."""
    return SERIES_COLOURS[i % len(SERIES_COLOURS)]


def stage_colour(stage: int) -> str:
    return STAGE_COLOURS[int(stage) % len(STAGE_COLOURS)]


FORMATS = ("png", "pdf")


def save(figure: Figure, path: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """In these formats, or only the one that the path names; the same bytes for the same data."""
    import io

    from residual_audio.files import write_bytes

    if path.suffix[1:] in FORMATS:
        formats = (path.suffix[1:],)
    _lay_out(figure)
    written = []
    for format in formats:
        buffer = io.BytesIO()
        how: Any = {"pil_kwargs": {"compress_level": 3}} if format == "png" else {}
        figure.savefig(buffer, format=format, metadata=_UNDATED[format], **how)
        written.append(write_bytes(path.with_suffix(f".{format}"), buffer.getvalue()))
    return written


def _lay_out(figure: Figure) -> None:
    """One layout for all files; left to `savefig` it is made twice a file, and all drawn twice."""
    import matplotlib as mpl

    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        # a placeholder, as "none" leaves it, would still have everything drawn twice
        with mpl.rc_context({"figure.constrained_layout.use": False, "figure.autolayout": False}):
            figure.set_layout_engine(None)


_UNDATED: dict[str, dict[str, None]] = {"png": {"Software": None}, "pdf": {"CreationDate": None}}


def stage_legend(where: Axes | Figure, stages: list[int], **options: Any) -> None:
    """One marker a stage, inside axes or (`below=True`) under the whole figure; none for one."""
    from matplotlib.lines import Line2D

    if len(stages) < 2:
        return

    handles = [
        Line2D([], [], marker="o", linestyle="", color=stage_colour(s), label=f"Stage {s}")
        for s in stages
    ]
    if options.pop("below", False):
        options |= {"loc": "outside lower center", "ncols": len(stages)}
    where.legend(handles=handles, handletextpad=0.2, columnspacing=1.0, **options)
