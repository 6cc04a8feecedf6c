"""`ra.atlas(run)`: the head atlas of a run, to open in a browser or to see in a notebook."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from html import escape
from pathlib import Path

from residual_audio.atlas.autoencoder_files import is_autoencoder
from residual_audio.atlas.build import Atlas, AtlasSettings, write_atlas
from residual_audio.atlas.shelf import as_single_page
from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress
from residual_audio.report.write import write_analysis
from residual_audio.surface.given import ModelLike
from residual_audio.surface.inside import analyse
from residual_audio.surface.runs import RunLike, given_run
from residual_audio.surface.unit_features import unit_features

HEIGHT_PX = 760
MOST_INLINE = 60_000_000
"""Bytes that a cell of a notebook may hold."""


@dataclass(frozen=True)
class AtlasView(Atlas):
    """An atlas on disk that can be opened."""

    def open(self) -> AtlasView:
        """In the browser of this machine."""
        webbrowser.open(self.page.resolve().as_uri())
        return self

    def _repr_html_(self) -> str:
        """For notebooks: the page in a frame of its own, which may only run its own script."""
        if self.n_bytes > MOST_INLINE:
            where = escape(str(self.page))
            return (
                f"<p>This atlas has {self.n_bytes / 1e6:.0f} MB, too much for a notebook: open "
                f"<code>{where}</code> in a browser, or call <code>.open()</code>.</p>"
            )
        page = escape(as_single_page(self.page))
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="head atlas" '
            f'width="100%" height="{HEIGHT_PX}" loading="lazy"></iframe>'
        )


def atlas(
    run: RunLike,
    other: RunLike | None = None,
    *,
    out: Path | None = None,
    single_file: bool = False,
    features: Path | None = None,
    unit: str | None = None,
    model: ModelLike | None = None,
    progress: Progress = SILENT,
) -> AtlasView:
    """Write the atlas of a run (or of two, side by side) and return it; tables are made if missing.

    features: a file of units from elsewhere, as those of a sparse autoencoder, shown beside heads;
    or an autoencoder that SAELens wrote, of the latent, or of the tokens of `unit`, for which the
    clips are run through the model again.

    A notebook shows it inline, up to 60 MB.

    >>> import tempfile, residual_audio as ra
    >>> run = ra.extract("nano", ra.load_dataset("synthetic", n_clips=12), tempfile.mkdtemp())
    >>> ra.atlas(run).page.name
    'index.html'
    """
    if unit is not None:
        if features is None or not is_autoencoder(Path(features)):
            raise InputError("unit= says what an autoencoder reads: give its folder as features=")
        features = unit_features(given_run(run), Path(features), unit, model, progress)
    beside = None if other is None else _with_tables(other, progress)
    settings = AtlasSettings(out, single_file, beside, features)
    made = write_atlas(_with_tables(run, progress), settings, progress)
    return AtlasView(made.page, made.files, made.missing)


def _with_tables(run: RunLike, progress: Progress) -> Path:
    """The folder of a run, analysed if nobody has done it."""
    folder = given_run(run).folder
    if not (folder / "tables" / "heads.csv").is_file():
        write_analysis(analyse(run, progress=progress), folder)
    return folder
