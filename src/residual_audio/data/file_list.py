"""A data set of files that somebody names, with or without labels."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonpath
from pathlib import Path

from residual_audio.data.base import Card, Dataset
from residual_audio.errors import DatasetError, InputError
from residual_audio.types import Clip

NAME = "files"
_CARD = Card(
    name=NAME,
    title="Files by name",
    task="labels",
    licence="yours",
    citation="",
    url="",
    layout="",
    download="",
    group="each file by itself",
)


def dataset_of_files(
    files: Sequence[str | Path], labels: Sequence[str | None] | None = None
) -> Dataset:
    """Files in the order given; ids are their paths below the folder they share."""
    paths = [Path(file).expanduser() for file in files]
    if not paths:
        raise InputError("there is no file in the list")
    if labels is not None and len(labels) != len(paths):
        raise InputError(f"{len(labels)} labels for {len(paths)} files")
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise DatasetError(f"there is no file '{missing[0]}'")
    whole = [path.absolute() for path in paths]
    root = Path(commonpath([path.parent for path in whole]))
    ids = [path.relative_to(root).as_posix() for path in whole]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"'{twice}' is in the list twice")
    said = list(labels) if labels is not None else [None] * len(paths)
    clips = tuple(
        Clip(id=name, path=path, label=label, group=name)
        for name, path, label in zip(ids, whole, said, strict=True)
    )
    classes = tuple(sorted({label for label in said if label}))
    return Dataset(name=NAME, root=root, clips=clips, card=_CARD, classes=classes)
