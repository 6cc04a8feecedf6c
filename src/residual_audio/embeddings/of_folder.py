"""One unit vector a window of every audio file of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from residual_audio import provenance
from residual_audio.data.audio_files import AUDIO_SUFFIXES, is_audio
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.rows import named_rows
from residual_audio.embeddings.vector_cache import Embedded, digest_of, recall
from residual_audio.errors import InputError
from residual_audio.files import shown
from residual_audio.passes.embed import embed_items
from residual_audio.passes.sources import cut_inputs
from residual_audio.progress import SILENT, Progress


def audio_files(folder: Path) -> list[Path]:
    """Audio files below a folder, in order; an empty or missing folder is an error."""
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder of audio files")
    files = sorted(p for p in folder.rglob("*") if is_audio(p.name) and p.is_file())
    if not files:
        raise InputError(f"'{folder}' holds no audio file (looked for {', '.join(AUDIO_SUFFIXES)})")
    return files


def file_names(files: Sequence[Path], root: Path | None) -> list[str]:
    """What the rows of files are called: their path below `root`, or the bare name."""
    return [shown(file.relative_to(root) if root else file.name) for file in files]


def embed_windows(
    model: JointEmbedder,
    files: Sequence[Path],
    how: EmbeddingSettings = DEFAULT,
    *,
    root: Path | None = None,
    progress: Progress = SILENT,
) -> Embedded:
    """Files in windows side by side, whatever `how.long`: rows of one file share its name."""
    names = file_names(files, root)

    def compute() -> Embedded:
        cut = cut_inputs(model, "tile")
        found = embed_items(model, files, cut, how, each_window=True, progress=progress)
        return named_rows(found, names, model.name)

    if not how.cache:
        return compute()
    contents = [[name, provenance.sha256_file(f)] for name, f in zip(names, files, strict=True)]
    key = {"what": "windows", "data": digest_of(contents), "n": len(files)}
    return recall(model, key, compute)
