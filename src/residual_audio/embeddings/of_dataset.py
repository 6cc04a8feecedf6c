"""One unit vector a clip of a data set."""

from __future__ import annotations

from residual_audio.data.base import Dataset
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.rows import joined, named_rows
from residual_audio.embeddings.vector_cache import Embedded, recall
from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.passes.embed import embed_items
from residual_audio.passes.sources import cut_clips
from residual_audio.progress import SILENT, Progress

PIECE = 128
"""About so many clips are kept at a time: what is lost when the work is stopped."""


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

    progress.step("embedding", len(clips))
    counted = _Counted(progress)
    # a piece holds whole batches: what runs together does not depend on where a run was stopped
    size = max(1, PIECE // how.batch_size) * how.batch_size
    starts = range(0, len(clips), size)

    def compute(start: int) -> Embedded:
        piece = clips[start : start + size]
        odd: dict[str, str] = {}
        cut = cut_clips(model, dataset, how.long, lambda clip, why: odd.update({clip.id: why}))
        found = embed_items(model, piece, cut, how, progress=counted)
        names = [clip.id for clip in piece]
        remarks = {name: odd[name] for name in names if name in odd}
        return named_rows(found, names, model.name, may_be_none=True, remarks=remarks)

    if not how.cache:
        return joined([compute(start) for start in starts])
    by_id = {clip.id: clip for clip in clips}

    def still_fails(name: str) -> bool:
        try:
            dataset.read(by_id[name], model.sample_rate_hz)
        except (ResidualAudioError, OSError):
            return True
        return False

    key = {"what": "clips", "data": dataset.fingerprint(), "n": len(clips), "long": how.long}
    pieces = []
    for start in starts:
        progress.keeps(
            f"embeddings of {start:,} of {len(clips):,} clips are kept (in pieces of {size}); the "
            "same command goes on with the rest"
        )
        before = counted.n
        mine = key | {"from": start, "size": size}
        pieces.append(recall(model, mine, lambda start=start: compute(start), still_fails))  # type: ignore[misc]
        if counted.n == before:
            progress.advance(len(clips[start : start + size]))
    return joined(pieces)


class _Counted(Progress):
    """Passes on what is done, and keeps the one step that all pieces belong to."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.n = progress, 0

    def advance(self, n: int = 1, said: str = "") -> None:
        self.n += n
        self.progress.advance(n, said)
