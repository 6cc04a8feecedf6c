"""`ra.atlas(run)`: the head atlas of a run, to open in a browser or to see in a notebook."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from html import escape
from pathlib import Path

from residual_audio.atlas.build import Atlas, AtlasSettings, write_atlas
from residual_audio.progress import SILENT, Progress

HEIGHT_PX = 760


@dataclass(frozen=True)
class AtlasView(Atlas):
    """An atlas on disk that can be opened."""

    def open(self) -> AtlasView:
        """In the browser of this machine."""
        webbrowser.open(self.page.resolve().as_uri())
        return self

    def _repr_html_(self) -> str:
        """For notebooks: the page in a frame of its own, which may only run its own script."""
        page = escape(self.page.read_text(encoding="utf-8"))
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="head atlas" '
            f'width="100%" height="{HEIGHT_PX}" loading="lazy"></iframe>'
        )


def atlas(
    run: str | Path,
    other: str | Path | None = None,
    *,
    out: Path | None = None,
    single_file: bool = False,
    progress: Progress = SILENT,
) -> AtlasView:
    """Write the atlas of a run (or of two, side by side) and return it.

    A notebook shows a single file inline: a frame cannot load files from beside a notebook.
    """
    settings = AtlasSettings(out, single_file, None if other is None else Path(other))
    made = write_atlas(Path(run), settings, progress)
    return AtlasView(made.page, made.files, made.missing)
