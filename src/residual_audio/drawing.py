"""How what functions hand out shows itself: cells and HTML here, pictures drawn in `report/`.

Tables, results and caches stand far below the room that draws. That room is found by its name when
a picture is asked for, as the command line finds its commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from residual_audio.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

_NAMED = 5
"""Clips that are named below numbers; `details` of a result name all."""


class Pictured:
    """Something that a picture says more of than its numbers."""

    def plot(self, what: str | None = None, *, clip: int = 0) -> Figure:
        """A figure: of a table one column (`what`) with its intervals, of a result its scores
        beside chance, of a cache one unit (`what`) of one clip over time and frequency.

        `figure.savefig("file.png")` keeps it; a notebook shows it.
        """
        pictures = import_module("residual_audio.report.pictures")
        return cast("Figure", pictures.draw(self, what, clip))


def cell(value: object) -> str:
    """A value in a table: four digits of a number, a dash where there is none.

    >>> cell(0.81666667), cell(float("nan")), cell("rain")
    ('0.8167', '–', 'rain')
    """
    if isinstance(value, float):
        return "–" if value != value else f"{value:.4g}"
    return str(value)


def html_table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()
) -> str:
    """A table for notebooks, with what to know before believing it; all text is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows
    )
    below = "".join(f"<p><small>{escape(note)}</small></p>" for note in notes)
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{below}"
    )


def data_frame(data: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Columns or rows as a data frame."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "export", "a data frame") from None
    return pandas.DataFrame(dict(data) if isinstance(data, Mapping) else list(data))


def notes_in(details: Mapping[str, Any]) -> tuple[str, ...]:
    """What the details of a result say to whoever reads its numbers, in sentences.

    >>> notes_in({"skipped": {"a.wav": "no audio"}, "heard_before": {"note": ""}})
    ('skipped a.wav: no audio',)
    """
    found = [
        (details.get("heard_before") or {}).get("note"),
        (details.get("gains") or {}).get("seen"),
        *(f"no {name}: {why}" for name, why in (details.get("reasons") or {}).items()),
    ]
    for title, key in (("skipped", "skipped"), ("odd", "remarks")):
        clips = details.get(key) or {}
        found += [f"{title} {name}: {why}" for name, why in list(clips.items())[:_NAMED]]
        found += [f"{title} {len(clips) - _NAMED} more"] if len(clips) > _NAMED else []
    return tuple(note for note in found if note)
