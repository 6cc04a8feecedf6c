"""Which of a few words fits each clip best."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from residual_audio.audio.windows import LongPolicy
from residual_audio.errors import InputError, Remark
from residual_audio.evaluation.classify import TEMPLATE, Classified
from residual_audio.evaluation.classify import classify as classify_clips
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import AudioInput
from residual_audio.progress import SILENT, Progress
from residual_audio.surface.given import GainsLike, ModelLike, given_model
from residual_audio.surface.given import given_files as given_files
from residual_audio.surface.measured import with_changes
from residual_audio.surface.running import name_of
from residual_audio.table import Table, from_rows


def classify(
    model: ModelLike,
    files: Sequence[AudioInput],
    labels: Sequence[str] | str,
    *,
    template: str = TEMPLATE,
    gains: GainsLike | None = None,
    sample_rate: int | None = None,
    long: LongPolicy = "first",
    progress: Progress = SILENT,
) -> Table:
    """The labels of each clip, best first, with scores that sum to 1 over the labels.

    A clip that cannot be heard has no row; a warning and the notes of the table say why.

    >>> import numpy as np, residual_audio as ra
    >>> hiss = np.random.default_rng(0).normal(size=160000) / 10
    >>> found = ra.classify("nano", [hiss], ["rain", "a dog"], sample_rate=32000)
    >>> found["label"].tolist(), bool(abs(found["score"].sum() - 1) < 1e-9)
    (['rain', 'a dog'], True)
    """
    if isinstance(files, str) or not isinstance(files, Sequence):
        raise InputError("classify takes a list of files or waveforms, not a single one")
    found = classify_each(
        model, files, labels, template=template, gains=gains, sample_rate=sample_rate,
        how=Hearing(long), progress=progress,
    )  # fmt: skip
    names = [name_of(item, place) for place, item in enumerate(files)]
    rows = [
        {"file": names[place], "rank": rank, "label": label, "score": score}
        for place, scores in found.labels.items()
        for rank, (label, score) in enumerate(scores, start=1)
    ]
    notes = [f"{names[place]} was skipped: {why}" for place, why in found.skipped.items()]
    notes += [f"{names[place]} is {why}" for place, why in found.remarks.items()]
    for note in notes:
        warnings.warn(note, Remark, stacklevel=2)
    caption = f"Labels of {len(found.labels)} clips, best first"
    return from_rows("labels", rows, caption, tuple(notes))


def classify_each(
    model: ModelLike,
    files: Sequence[AudioInput],
    labels: Sequence[str] | str,
    *,
    template: str = TEMPLATE,
    gains: GainsLike | None = None,
    sample_rate: int | None = None,
    how: Hearing | None = None,
    progress: Progress = SILENT,
) -> Classified:
    """The same by the place of each clip: what `residual-audio classify` prints."""
    given = labels.split(",") if isinstance(labels, str) else labels
    words = [word.strip() for word in given if word.strip()]
    if not words:
        raise InputError(f"'{labels}' holds no label: write e.g. --labels \"dog,rain\"")
    loaded = with_changes(given_model(model), gains)
    return classify_clips(
        loaded, files, words, template, how, sample_rate=sample_rate, progress=progress
    )
