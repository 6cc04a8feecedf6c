"""Zero-shot labels for clips, as people know it from pipelines: (label, score), best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from residual_audio.embeddings.embedder import JointEmbedder
from residual_audio.errors import InputError
from residual_audio.passes.embed import embed_items
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import AudioInput, cut_inputs
from residual_audio.progress import SILENT, Progress

TEMPLATE = "This is a sound of {}."


@dataclass(frozen=True)
class Classified:
    """Labels of clips by their place in what was asked."""

    labels: Mapping[int, tuple[tuple[str, float], ...]]
    """Clip → (label, score), best first; the scores of a clip sum to 1."""
    skipped: Mapping[int, str]
    """Clip → why it could not be heard."""
    remarks: Mapping[int, str]
    """Clip that can hardly be heard (silent, a few samples) → in what way."""


def classify(
    model: JointEmbedder,
    clips: Sequence[AudioInput],
    labels: Sequence[str],
    template: str = TEMPLATE,
    how: Hearing | None = None,
    *,
    sample_rate: int | None = None,
    progress: Progress = SILENT,
) -> Classified:
    """Softmax over labels of temperature-scaled cosines."""
    if "{}" not in template:
        raise InputError(f"the template '{template}' has no {{}} for the label")
    how = how or Hearing()
    text = model.embed_text([template.replace("{}", label) for label in labels])
    odd: dict[int, str] = {}  # by identity: the same file may be given twice, arrays have no name
    cut = cut_inputs(model, how.long, sample_rate, lambda clip, why: odd.update({id(clip): why}))
    found = embed_items(model, clips, cut, how, progress=progress)
    logits = model.logit_scale * found.vectors.astype(np.float64) @ text.T.astype(np.float64)
    scores = np.exp(logits - logits.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    order = np.argsort(-scores, axis=1, kind="stable")
    return Classified(
        {
            place: tuple((labels[j], float(row[j])) for j in ranks)
            for place, row, ranks in zip(found.places, scores, order, strict=True)
        },
        {place: str(error) for place, error in found.skipped.items()},
        {place: odd[id(clip)] for place, clip in enumerate(clips) if id(clip) in odd},
    )
