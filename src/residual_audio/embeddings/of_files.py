"""Embeddings of files in one safetensors file, with what made them in its header."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from residual_audio import provenance
from residual_audio.audio.windows import LongPolicy
from residual_audio.errors import AudioError, InputError
from residual_audio.files import write_safetensors
from residual_audio.models.clap import AudioTextModel


def embed_files(
    model: AudioTextModel,
    files: Sequence[Path],
    out: Path,
    long: LongPolicy = "first",
    batch_size: int = 8,
    advance: Callable[[int], None] | None = None,
) -> tuple[list[Path], dict[str, str]]:
    """Files that were embedded, in order, and those that were skipped with the reason."""
    done: list[Path] = []
    skipped: dict[str, str] = {}
    parts: list[np.ndarray] = []
    size = 4 * batch_size  # cores wait for each other only at the end of a group
    for i in range(0, len(files), size):
        group = list(files[i : i + size])
        try:
            parts.append(model.embed_audio(group, long=long, batch_size=batch_size))
            done += group
        except AudioError:
            for file in group:  # one bad file must not cost its neighbours
                try:
                    parts.append(model.embed_audio([file], long=long))
                    done.append(file)
                except AudioError as error:
                    skipped[str(file)] = str(error)
        if advance is not None:
            advance(len(group))
    if not done:
        first = next(iter(skipped.values()), "there are none")
        raise InputError(f"none of the {len(files)} files could be embedded. The first: {first}")
    header = {
        "files": json.dumps([str(file) for file in done], ensure_ascii=False),
        "provenance": json.dumps(provenance.collect(model=model, long=long)),
    }
    write_safetensors(out, {"embeddings": np.concatenate(parts)}, header)
    return done, skipped
