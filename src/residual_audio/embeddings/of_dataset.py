"""One unit vector a clip of a data set."""

from __future__ import annotations

from residual_audio.data.base import Dataset
from residual_audio.embeddings.cache import Embedded, recall
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.rows import named_rows
from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.passes.embed import embed_items
from residual_audio.passes.sources import cut_clips
from residual_audio.progress import SILENT, Progress


def embed_clips(
    model: JointEmbedder,
    dataset: Dataset,
    how: EmbeddingSettings = DEFAULT,
    *,
    progress: Progress = SILENT,
) -> Embedded:
    """One vector a readable clip, in the order of the data set."""
    clips = dataset.clips
    if len(clips) == 0:
        raise InputError(f"{dataset.name} has no clip to embed")

    def compute() -> Embedded:
        cut = cut_clips(model, dataset, how.long)
        found = embed_items(model, clips, cut, how, progress=progress)
        return named_rows(found, [clip.id for clip in clips], model.name)

    if not how.cache:
        return compute()
    by_id = {clip.id: clip for clip in clips}

    def still_fails(name: str) -> bool:
        try:
            dataset.read(by_id[name], model.sample_rate_hz)
        except (ResidualAudioError, OSError):
            return True
        return False

    key = {"what": "clips", "data": dataset.fingerprint(), "n": len(clips), "long": how.long}
    return recall(model, key, compute, still_fails)
