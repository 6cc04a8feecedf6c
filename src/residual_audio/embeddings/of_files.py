"""Embeddings of files in one file, with what made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from residual_audio import provenance
from residual_audio.embeddings.embedder import JointEmbedder
from residual_audio.embeddings.vector_files import find_writer
from residual_audio.errors import InputError
from residual_audio.files import shown
from residual_audio.passes.embed import embed_items
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import cut_inputs
from residual_audio.progress import SILENT, Progress


@dataclass(frozen=True)
class EmbeddedFiles:
    """What `embed_files` wrote."""

    files: tuple[Path, ...]
    """One a row, in order."""
    skipped: Mapping[str, str]
    """File → why it has no row."""
    remarks: Mapping[str, str]
    """File that can hardly be heard → in what way."""
    width: int
    """Of a vector."""


def embed_files(
    model: JointEmbedder,
    files: Sequence[Path],
    out: Path,
    how: Hearing | None = None,
    *,
    progress: Progress = SILENT,
) -> EmbeddedFiles:
    """Write one unit vector a readable file as `embeddings` [n, d].

    The name of `out` says the format: .safetensors, .npz, .csv or .parquet.
    """
    write = find_writer(out)
    how = how or Hearing()
    odd: dict[str, str] = {}
    cut = cut_inputs(model, how.long, odd=lambda file, why: odd.update({shown(str(file)): why}))
    found = embed_items(model, files, cut, how, progress=progress)
    skipped = {shown(files[place]): str(error) for place, error in found.skipped.items()}
    if not found.places:
        first = next(iter(skipped.values()), "there are none")
        raise InputError(f"none of the {len(files)} files could be embedded. The first: {first}")
    done = tuple(files[place] for place in found.places)
    made = provenance.collect(model=model, long=how.long)
    write(out, found.vectors, [shown(file) for file in done], made)
    return EmbeddedFiles(done, skipped, odd, found.vectors.shape[1])
