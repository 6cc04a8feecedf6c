"""Embeddings of files, in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from residual_audio.audio.windows import LongPolicy
from residual_audio.embeddings.of_files import EmbeddedFiles, embed_files
from residual_audio.embeddings.vector_files import find_writer
from residual_audio.passes.loop import Hearing
from residual_audio.progress import SILENT, Progress
from residual_audio.surface.given import GainsLike, ModelLike, given_files, given_gains, given_model
from residual_audio.surface.measured import with_changes


def write_vectors(
    model: ModelLike,
    files: Sequence[Path],
    out: Path,
    *,
    gains: GainsLike | None = None,
    long: LongPolicy = "first",
    batch_size: int = 8,
    device: str = "auto",
    progress: Progress = SILENT,
) -> EmbeddedFiles:
    """One vector of unit length for each file that can be heard, with what made them; a folder
    stands for every sound file below it.

    The name of `out` says the format: .safetensors, .npz, .csv or .parquet.
    """
    find_writer(out)  # a wrong name or wrong gains cost nothing: no model was loaded
    read = None if gains is None else given_gains(gains)
    loaded = with_changes(given_model(model, device), read)
    return embed_files(
        loaded, given_files(files), out, Hearing(long, batch_size), progress=progress
    )
