"""Pictures of what functions hand out: asked for here, drawn in `report/`.

Tables, results and caches stand far below the room that draws. That room is found by its name when
a picture is asked for, as the command line finds its commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Pictured:
    """Something that a picture says more of than its numbers."""

    def plot(self, what: str | None = None, *, clip: int = 0) -> Figure:
        """A figure: of a table one column (`what`) with its intervals, of a result its scores
        beside chance, of a cache one unit (`what`) of one clip over time and frequency.

        `figure.savefig("file.png")` keeps it; a notebook shows it.
        """
        pictures = import_module("residual_audio.report.pictures")
        return cast("Figure", pictures.draw(self, what, clip))
