"""`ra.adapt_pairs`: from a table of files and texts to an adapted, judged checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from residual_audio.pipeline.own_pairs import How, PairOutcome, PairSettings, adapt_to_pairs
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.folded_checkpoint import Layout
from residual_audio.surface.given import DatasetLike, ModelLike, given_dataset, given_model


def adapt_pairs(
    model: ModelLike,
    dataset: DatasetLike,
    out: str | Path,
    *,
    how: How = "residual",
    to: Layout = "native",
    root: str | Path | None = None,
    labels: Sequence[str | None] | None = None,
    progress: Progress = SILENT,
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
    given = given_model(model)
    # the weights that were given stay as they are
    own = type(given)._twin(given, copy.deepcopy(given.encoder))
    own.head = copy.deepcopy(given.head)
    data = given_dataset(dataset, root, labels)
    settings = PairSettings(how=how, to=to)
    return adapt_to_pairs(own, data, Path(out), settings, progress=progress)
