"""TinySOL: 2,913 single notes of 14 instruments, 5 official folds."""

from __future__ import annotations

import re
from pathlib import Path

from residual_audio.data.audio_files import Files, below
from residual_audio.data.base import Card, Dataset
from residual_audio.data.metadata import Row, read_csv, whole
from residual_audio.types import Clip

CARD = Card(
    name="tinysol",
    title="TinySOL: isolated musical notes",
    task="labels",
    licence="CC BY 4.0",
    citation=(
        "C. E. Cella, D. Ghisi, V. Lostanlen, F. Lévy, J. Fineberg, Y. Maresz. "
        "OrchideaSOL: a dataset of extended instrumental techniques for computer-aided "
        "orchestration. ICMC 2020."
    ),
    url="https://doi.org/10.5281/zenodo.3685367",
    layout=(
        "TinySOL_metadata.csv (a separate download; also found in annotation/)\n"
        "<Family>/<Instrument>/ordinario/<note>.wav (also found in audio/ or TinySOL/)"
    ),
    download=(
        "Download TinySOL.tar.gz and TinySOL_metadata.csv from Zenodo, unpack the archive, and "
        "give the folder that holds the table and the family folders."
    ),
    n_clips=2913,
    n_classes=14,
    counts={"0": 583, "1": 582, "2": 583, "3": 582, "4": 583},
    group=(
        "one recorded note: instrument, pitch, dynamics and string or take. A note whose name ends "
        "in R100u or R100d is its neighbour shifted by a semitone and belongs to the neighbour's "
        "group; the official folds tear some of these apart. They do not keep the same pitch at "
        "other dynamics or on other strings together: those are recordings of their own"
    ),
)
PLACES = ("", "audio/", "TinySOL/", "TinySOL2020/")
NAMES = {
    "Clarinet in Bb": "clarinet in B-flat",
    "Trumpet in C": "trumpet in C",
    "French Horn": "French horn",
}
COLUMNS = ("Path", "Fold", "Instrument (abbr.)", "Instrument (in full)", "Pitch ID", "Dynamics")


def load(root: Path) -> Dataset:
    table = below(root, "TinySOL_metadata.csv", "annotation/TinySOL_metadata.csv")
    home = table.parent.parent if table.parent.name == "annotation" else table.parent
    files = Files(home)
    rows = read_csv(table, COLUMNS)
    clips, missing = [], {}
    for row in rows:
        name, label = row["Path"], row["Instrument (in full)"]
        path = next((p for place in PLACES if (p := files.find(place + name))), None)
        clips.append(
            Clip(
                id=name,
                path=path or home / name,
                label=NAMES.get(label, label.lower()),
                fold=whole(table, "Fold", row["Fold"]),
                group=recording(table, row),
            )
        )
        if path is None:
            missing[name] = f"no file {name}"
    return Dataset(
        name="tinysol",
        root=home,
        clips=tuple(clips),
        classes=tuple(sorted({clip.label for clip in clips if clip.label}, key=str.lower)),
        template="This is a sound of {}.",
        card=CARD,
        folds={fold: str(fold) for fold in sorted({c.fold for c in clips if c.fold is not None})},
        splits=(f"{table}#Pitch ID:blocks", f"{table}#Dynamics"),
        missing=missing,
    )


def recording(table: Path, row: Row) -> str:
    """The note that was played: `BTb-30-pp-N` for F#1, and for the G1 made from it (R100u).

    Names read <instrument>-<technique>-<pitch>-<dynamics>-<string or take>-<retuning>.
    """
    *_, take, retuning = Path(row["Path"]).stem.split("-")
    pitch = whole(table, "Pitch ID", row["Pitch ID"])
    if shift := re.search(r"R(\d+)([ud])$", retuning):
        semitones = round(int(shift[1]) / 100)
        pitch += -semitones if shift[2] == "u" else semitones
    return f"{row['Instrument (abbr.)']}-{pitch}-{row['Dynamics']}-{take}"
