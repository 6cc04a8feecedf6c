"""Zero-shot labels for clips, as people know it from pipelines: (label, score), best first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from residual_audio.audio.windows import LongPolicy
from residual_audio.errors import InputError
from residual_audio.models.clap import AudioTextModel
from residual_audio.passes.embed import embed_items
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import AudioInput, cut_inputs


def classify(
    model: AudioTextModel,
    clips: Sequence[AudioInput],
    labels: Sequence[str],
    template: str = "This is a sound of {}.",
    long: LongPolicy = "first",
    batch_size: int = 8,
) -> list[list[tuple[str, float]]]:
    """Softmax over labels of temperature-scaled cosines."""
    if "{}" not in template:
        raise InputError(f"the template '{template}' has no {{}} for the label")
    text = model.embed_text([template.replace("{}", label) for label in labels])
    hearing = Hearing(long, batch_size)
    audio = embed_items(model, clips, cut_inputs(model, long), hearing, strict=True).vectors
    logits = model.logit_scale * audio.astype(np.float64) @ text.T.astype(np.float64)
    scores = np.exp(logits - logits.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    order = np.argsort(-scores, axis=1, kind="stable")
    return [
        [(labels[j], float(row[j])) for j in ranks]
        for row, ranks in zip(scores, order, strict=True)
    ]
