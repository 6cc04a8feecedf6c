"""UrbanSound8K: 8,732 urban sounds of up to 4 s, 10 classes, 10 official folds."""

from __future__ import annotations

from pathlib import Path

from residual_audio.data.audio_files import Files, below, readable
from residual_audio.data.base import Card, Dataset
from residual_audio.data.metadata import read_csv, whole
from residual_audio.types import Clip

CARD = Card(
    name="urbansound8k",
    title="UrbanSound8K",
    task="labels",
    licence="CC BY-NC 3.0",
    citation="J. Salamon, C. Jacoby, J. P. Bello. A Dataset and Taxonomy for Urban Sound Research. "
    "ACM MM 2014.",
    url="https://urbansounddataset.weebly.com/urbansound8k.html",
    layout="metadata/UrbanSound8K.csv\naudio/fold{1 to 10}/{fsID}-{classID}-{take}-{slice}.wav",
    download=(
        "Download UrbanSound8K.tar.gz from https://zenodo.org/records/1203745, unpack it, and give "
        "the folder that holds audio/ and metadata/."
    ),
    n_clips=8732,
    n_classes=10,
    counts=dict(
        zip(
            map(str, range(1, 11)),
            (873, 888, 925, 990, 936, 823, 838, 806, 816, 837),
            strict=True,
        )
    ),
    group="the Freesound recording a slice was cut from (fsID)",
)
COLUMNS = ("slice_file_name", "fsID", "fold", "classID", "class")


def load(root: Path) -> Dataset:
    table = below(root, "metadata/UrbanSound8K.csv")
    home = table.parent.parent
    files = Files(home)
    clips, missing, targets = [], {}, {}
    for row in read_csv(table, COLUMNS):
        name = row["slice_file_name"]
        fold = whole(table, "fold", row["fold"])
        path = files.find(f"audio/fold{fold}/{name}")
        label = readable(row["class"])
        targets[label] = whole(table, "classID", row["classID"])
        clips.append(
            Clip(
                id=name,
                path=path or home / f"audio/fold{fold}" / name,
                label=label,
                fold=fold,
                group=row["fsID"],
            )
        )
        if path is None:
            missing[name] = f"no file audio/fold{fold}/{name}"
    return Dataset(
        name="urbansound8k",
        root=home,
        clips=tuple(clips),
        classes=tuple(sorted(targets, key=lambda label: targets[label])),
        card=CARD,
        folds={fold: str(fold) for fold in sorted({c.fold for c in clips if c.fold is not None})},
        missing=missing,
    )
