"""Clotho v2.1: 5,929 recordings of 15 to 30 s with five captions each."""

from __future__ import annotations

from pathlib import Path

from residual_audio.data.audio_files import Files, below
from residual_audio.data.base import Card, Dataset
from residual_audio.data.metadata import read_csv
from residual_audio.errors import DatasetError
from residual_audio.types import Clip

CARD = Card(
    name="clotho",
    title="Clotho v2.1: audio captioning",
    task="captions",
    licence="captions: Tampere University licence (research); audio: Creative Commons, per file",
    citation=(
        "K. Drossos, S. Lipping, T. Virtanen. Clotho: an Audio Captioning Dataset. ICASSP 2020."
    ),
    url="https://doi.org/10.5281/zenodo.4783391",
    layout=(
        "clotho_captions_{development,validation,evaluation}.csv\n"
        "{split}/*.wav (or clotho_audio_{split}/*.wav)"
    ),
    download=(
        "Download the captions and the audio archives of the splits you want from Zenodo, unpack "
        "them side by side, and give that folder (evaluation alone is enough for retrieval)."
    ),
    n_clips=5929,
    counts={"development": 3839, "validation": 1045, "evaluation": 1045},
    group="the Freesound recording: each file by itself",
    options={"split": "development, validation or evaluation: read only this part"},
)
SPLITS = {"development": 1, "validation": 2, "evaluation": 3}
CAPTIONS = tuple(f"caption_{i}" for i in range(1, 6))


def load(root: Path, split: str | None = None) -> Dataset:
    if split is not None and split not in SPLITS:
        raise DatasetError(f"clotho has no split '{split}'; there are: {', '.join(SPLITS)}")
    wanted = [split] if split else list(SPLITS)
    home = below(root, *(f"clotho_captions_{name}.csv" for name in wanted)).parent
    files = Files(home)
    clips: list[Clip] = []
    missing: dict[str, str] = {}
    folds = {}
    for name in wanted:
        table = home / f"clotho_captions_{name}.csv"
        if not table.is_file():
            continue
        folds[SPLITS[name]] = name
        for row in read_csv(table, ["file_name", *CAPTIONS]):
            file = row["file_name"]
            path = _find(files, name, file)
            clip = Clip(
                id=f"{name}/{file}",
                path=path or home / name / file,
                captions=tuple(row[c].strip() for c in CAPTIONS if row[c].strip()),
                fold=SPLITS[name],
                group=f"{name}/{file}",
            )
            clips.append(clip)
            if path is None:
                missing[clip.id] = f"no file {name}/{file}"
    return Dataset("clotho", home, tuple(clips), CARD, folds=folds, missing=missing)


def _find(files: Files, split: str, file: str) -> Path | None:
    """Some names begin with a space, which some unpacking tools drop."""
    for folder in (split, f"clotho_audio_{split}", f"clotho_audio_{split}/{split}"):
        for name in dict.fromkeys((file, file.strip())):
            if path := files.find(f"{folder}/{name}"):
                return path
    return None
