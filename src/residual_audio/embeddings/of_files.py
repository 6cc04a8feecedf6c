"""Embeddings of files in one safetensors file, with what made them in its header."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from residual_audio import provenance
from residual_audio.audio.windows import LongPolicy
from residual_audio.errors import InputError
from residual_audio.files import write_safetensors
from residual_audio.models.clap import AudioTextModel
from residual_audio.passes.embed import embed_items
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import cut_inputs
from residual_audio.progress import SILENT, Progress


def embed_files(
    model: AudioTextModel,
    files: Sequence[Path],
    out: Path,
    long: LongPolicy = "first",
    batch_size: int = 8,
    progress: Progress = SILENT,
) -> tuple[list[Path], dict[str, str]]:
    """Files that were embedded, in order, and those that were skipped with the reason."""
    cut, hearing = cut_inputs(model, long), Hearing(long, batch_size)
    found = embed_items(model, files, cut, hearing, progress=progress)
    done = [files[place] for place in found.places]
    skipped = {str(files[place]): str(error) for place, error in found.skipped.items()}
    if not done:
        first = next(iter(skipped.values()), "there are none")
        raise InputError(f"none of the {len(files)} files could be embedded. The first: {first}")
    header = {
        "files": json.dumps([str(file) for file in done], ensure_ascii=False),
        "provenance": json.dumps(provenance.collect(model=model, long=long)),
    }
    write_safetensors(out, {"embeddings": found.vectors}, header)
    return done, skipped
