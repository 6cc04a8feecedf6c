"""Writing a data set out as 16-bit wav files with tables, to listen to or to use elsewhere."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from residual_audio.data.base import Dataset, Wave
from residual_audio.errors import AudioError, InputError
from residual_audio.files import replacing, write_text
from residual_audio.progress import SILENT, Progress

# where the clips of a compositional set go, and the table of its items: as in the CompA releases
COMPOSITIONS = {
    "order": ("CompA_order_files", "CompA_order_benchmark.csv"),
    "attribute": ("CompA_attribute_files", "Compa-Attribute.csv"),
}


def write_dataset(
    dataset: Dataset,
    out: Path,
    sample_rate_hz: int = 32_000,
    progress: Progress = SILENT,
) -> int:
    """Write every clip and `manifest.csv` (which the data set `manifest` reads); with items, also
    the table of a CompA release (which `compa-order` or `compa-attribute` reads)."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"'{out}' is not an empty folder: choose another, or empty it")
    kind = next((k for k in COMPOSITIONS if dataset.pairs and f"kind={k} " in dataset.recipe), None)
    folder = COMPOSITIONS[kind][0] if kind else "audio"
    (out / folder).mkdir(parents=True, exist_ok=True)
    progress.step("making", len(dataset.clips))
    progress.keeps(f"the sounds made so far are in {out}; empty it before you start again")
    rows = []
    for clip in dataset.clips:
        name = f"{folder}/{clip.id.replace('/', '_')}.wav"
        _write_wav(out / name, dataset.read(clip, sample_rate_hz), sample_rate_hz)
        said = (*clip.captions, "", "", "", "", "")[:5]
        rows.append([name, clip.label or "", clip.fold or "", clip.group or "", *said])
        progress.advance()
    header = ["path", "label", "fold", "group", *(f"caption_{i}" for i in range(1, 6))]
    _write_csv(out / "manifest.csv", header, rows)
    if kind:
        _write_items(dataset, out / COMPOSITIONS[kind][1])
    return len(rows)


def _write_items(dataset: Dataset, path: Path) -> None:
    parts = ("pair", "reversed_pair", "triplet")
    header = [f"{part}_caption" for part in parts] + [f"{part}_file" for part in parts]
    rows = []
    for pair in dataset.pairs:
        captions = [*pair.captions, "-"][:3]
        files = [*(f"{clip.id}.wav" for clip in pair.clips), "-"][:3]
        rows.append([*captions, *files])
    _write_csv(path, header, rows)


def _write_wav(path: Path, wave: Wave, sample_rate_hz: int) -> None:
    import soundfile

    # as whole numbers: libsndfile scales floats by 32767, which would leave the grid
    steps = np.clip(np.rint(wave * 32768.0), -32768, 32767).astype(np.int16)
    try:
        with replacing(path) as temporary:
            soundfile.write(temporary, steps, sample_rate_hz, subtype="PCM_16", format="WAV")
    except (OSError, soundfile.SoundFileError) as error:
        raise AudioError(f"cannot write '{path}': {error}") from error


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())
