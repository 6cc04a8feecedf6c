"""`ra.adapt_pairs`: from a table of files and texts to an adapted, judged checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from residual_audio.pipeline.own_pairs import How, PairOutcome, PairSettings, adapt_to_pairs
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.folded_checkpoint import Layout
from residual_audio.surface.given import DatasetLike, ModelLike, given_dataset, given_model
from residual_audio.surface.model import Model


class PairOptions(TypedDict, total=False):
    """How to adapt, to judge and to write."""

    how: How
    to: Layout
    n_folds: int
    seed: int
    epochs: int | None
    """At most so many; None: what is good for the method."""
    licence: str | None
    """Of the base, where its card does not say it."""


def adapt_pairs(
    model: ModelLike,
    dataset: DatasetLike,
    out: str | Path,
    *,
    root: str | Path | None = None,
    labels: Sequence[str | None] | None = None,
    progress: Progress = SILENT,
    **options: Unpack[PairOptions],
) -> PairOutcome:
    """Adapt a model to sounds with labels or captions; what it is worth on grouped folds first.

    `dataset` is a data set, a name with `root` (`"manifest"`, `root="pairs.csv"`), a folder or a
    list of files with `labels`. `how`: `residual` (gains inside the network), `lora`, `head` (the
    joint head) or `all` (every weight of the encoder). The checkpoint lies below `out`, with a
    card that holds the scores; a stopped call goes on where it stopped.

    >>> import tempfile, residual_audio as ra
    >>> sounds = ra.load_dataset("synthetic", n_clips=246).select(classes=["rain", "wind"])
    >>> found = ra.adapt_pairs("nano", sounds, tempfile.mkdtemp(), how="head")
    >>> found.after.n, found.checkpoint.name
    (12, 'head-native')
    """
    # the weights that were given stay as they are
    own = Model.copy_of(given_model(model))
    data = given_dataset(dataset, root, labels)
    return adapt_to_pairs(own, data, Path(out), PairSettings(**options), progress=progress)
