"""Orchestral notes cut from VSCO 2 Community Edition: one CSV beside a folder of audio."""

from __future__ import annotations

from pathlib import Path

from residual_audio.data.audio_files import Files, below, readable
from residual_audio.data.base import Card, Dataset
from residual_audio.data.metadata import read_csv, whole
from residual_audio.types import Clip

CARD = Card(
    name="orchestra",
    title="Orchestral notes from VSCO 2 Community Edition",
    task="labels",
    licence="CC0 1.0",
    citation="Versilian Studios. VSCO 2: Community Edition, 2016.",
    url="https://github.com/sgossner/VSCO-2-CE",
    layout="metadata.csv (filename, instrument, articulation, pitch, group, fold)\naudio/*.ogg",
    download=(
        "A cut of VSCO 2 CE: notes as mono files of at most 5 s in audio/, described in "
        "metadata.csv. Give the folder that holds both."
    ),
    n_clips=689,
    n_classes=15,
    group="instrument, articulation and pitch: repetitions and loudness layers of one note",
)


def load(root: Path) -> Dataset:
    table = below(root, "metadata.csv")
    home = table.parent
    files = Files(home)
    clips, missing = [], {}
    for row in read_csv(table, ["filename", "instrument", "group", "fold"]):
        name = row["filename"]
        path = files.find(f"audio/{name}")
        clips.append(
            Clip(
                id=name,
                path=path or home / "audio" / name,
                label=readable(row["instrument"]),
                fold=whole(table, "fold", row["fold"]),
                group=row["group"],
            )
        )
        if path is None:
            missing[name] = f"no file audio/{name}"
    return Dataset(
        name="orchestra",
        root=home,
        clips=tuple(clips),
        classes=tuple(sorted({clip.label for clip in clips if clip.label})),
        card=CARD,
        folds={fold: str(fold) for fold in sorted({c.fold for c in clips if c.fold is not None})},
        splits=(f"{table}#pitch:blocks", f"{table}#articulation"),
        missing=missing,
    )
