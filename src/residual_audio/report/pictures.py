"""What `.plot()` draws: a column of a table, the scores of a result, a unit over time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from residual_audio.errors import InputError
from residual_audio.report.style import COLUMN, CONTROL, HEAT, NEUTRAL, RC, stage_colour
from residual_audio.table import Table
from residual_audio.types import Head, Result

MOST = 40
"""Rows of a table that can be told apart in one picture."""

Floats = npt.NDArray[np.float64]


@runtime_checkable
class HeardClips(Protocol):
    """What was kept of clips, as far as a picture needs to know it."""

    clips: tuple[str, ...]
    units: tuple[str, ...]

    def time_frequency(self, name: str) -> npt.NDArray[Any]: ...


class ShownFigure(Figure):
    """A figure that notebooks show without any setting."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
        return buffer.getvalue()


def draw(thing: object, what: str | None = None, clip: int = 0) -> Figure:
    """The picture of a table, a result or a cache."""
    with rc_context(RC):
        if isinstance(thing, Table):
            return table_picture(thing, what)
        if isinstance(thing, Result):
            return result_picture(thing, what)
        if isinstance(thing, HeardClips):
            return unit_picture(thing, what, clip)
    raise InputError(f"there is no picture of a {type(thing).__name__}")


def table_picture(table: Table, column: str | None = None) -> Figure:
    """One column, a row a mark, with its interval where the table has one."""
    numbers = [name for name, values in table.columns.items() if values.dtype.kind in "fiub"]
    if not len(table) or not numbers:
        raise InputError(f"table '{table.name}' has no numbers to draw")
    if column is None:
        floats = [name for name in numbers if table[name].dtype.kind == "f"]
        column = next((n for n in numbers if _interval(table, n)), (floats or numbers)[0])
    if column not in numbers:
        raise InputError(f"'{column}' is no column of numbers; there are: {', '.join(numbers)}")
    words = [name for name in table.columns if name not in numbers]
    title = table.caption or table.name
    if len(table) > MOST:
        order = np.argsort(-np.abs(table[column].astype(np.float64)), kind="stable")
        title += f"\nthe {MOST} largest of {len(table)} rows"
        table = table.where(np.sort(order[:MOST]))
    names = [str(v) for v in table[words[0]]] if words else [str(i) for i in range(len(table))]
    ends = _interval(table, column)
    values = table[column].astype(np.float64)
    return _marks(names, values, None if ends is None else (table[ends[0]], table[ends[1]]),
                  column.replace("_", " "), title)  # fmt: skip


def _interval(table: Table, column: str) -> tuple[str, str] | None:
    """The columns that hold the ends of a column's interval."""
    stems = [f"{column}_"]
    if column.endswith("_change"):
        stems.append(column.removesuffix("change"))
    if column == "value":
        stems.append("")
    found = [(f"{stem}low", f"{stem}high") for stem in stems]
    return next(((low, high) for low, high in found if low in table and high in table), None)


def result_picture(result: Result, name: str | None = None) -> Figure:
    """Scores with their intervals, and what chance would give; or one of them."""
    scores = list(result.scores) if name is None else [result[name]]
    ends = (np.array([s.low for s in scores]), np.array([s.high for s in scores]))
    chance = np.array([np.nan if s.chance is None else s.chance for s in scores], np.float64)
    title = f"{result.task} of {result.model}\non {result.dataset} ({result.split})"
    values = np.array([score.value for score in scores])
    return _marks([s.name for s in scores], values, ends, "score", title, chance)


def _marks(
    names: Sequence[str],
    values: Floats,
    ends: tuple[Floats, Floats] | None,
    label: str,
    title: str,
    chance: Floats | None = None,
) -> Figure:
    figure, axes = _figure(COLUMN, 0.6 + 0.16 * max(len(names), 3))
    y = np.arange(len(names))[::-1]
    colours = [_colour(name) for name in names]
    if ends is not None:
        low, high = (np.where(np.isfinite(end), end, values) for end in ends)
        axes.hlines(y, low, high, colors=colours, linewidth=1.0)
    axes.scatter(values, y, c=colours, s=12, zorder=3)
    if chance is not None and np.isfinite(chance).any():
        axes.scatter(chance, y, marker="|", c=CONTROL, s=40, label="chance")
        axes.legend(loc="best")
    axes.set_yticks(y, names)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_xlabel(label)
    axes.set_title(title)
    axes.grid(axis="y", color=NEUTRAL, linewidth=0.2)
    return figure


def unit_picture(heard: HeardClips, unit: str | None, clip: int) -> Figure:
    """How large the output of a unit is at each time and frequency of a clip."""
    if not 0 <= clip < len(heard.clips):
        raise InputError(f"there is no clip {clip}: there are {len(heard.clips)}")
    known = [name for name in heard.units if name != "output"]
    if unit is None and not known:
        raise InputError("nothing with a time was kept: run with keep='s2.b5.h11', for example")
    name = unit or known[0]
    values = heard.time_frequency(name)[clip]
    size = np.linalg.norm(values.reshape(*values.shape[:2], -1), axis=-1)
    figure, axes = _figure(COLUMN, 1.9)
    image = axes.imshow(size.T, origin="lower", aspect="auto", cmap=HEAT)
    figure.colorbar(image, ax=axes, label="size of the output")
    axes.set_xlabel("time step")
    axes.set_ylabel("frequency step")
    axes.set_title(f"{name}, {heard.clips[clip].rpartition('/')[2]}")
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = ShownFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _colour(name: str) -> str:
    """That of the stage, where it is the name of a head."""
    try:
        return stage_colour(Head.parse(name).stage)
    except InputError:
        return stage_colour(0)
