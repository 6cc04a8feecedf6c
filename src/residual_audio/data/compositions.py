"""The schema of the CompA benchmarks: items of two or three captions and as many recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from residual_audio.data.audio_files import Files, below
from residual_audio.data.base import Card, Dataset, Pair
from residual_audio.data.metadata import Row, read_csv
from residual_audio.errors import DatasetError
from residual_audio.types import Clip

PARTS = ("pair", "reversed_pair", "triplet")
COLUMNS = ("pair_caption", "reversed_pair_caption", "pair_file", "reversed_pair_file")


def load_compositions(
    root: Path, card: Card, tables: Sequence[str], folders: Sequence[str]
) -> Dataset:
    """Read the official table as released; `-` or nothing means there is no triplet."""
    table = below(root, *tables)
    home = table.parent
    files = Files(home)
    captions: dict[str, list[str]] = {}
    items: list[tuple[list[str], list[str]]] = []
    groups: dict[str, str] = {}
    for number, row in enumerate(read_csv(table, COLUMNS), 1):
        said, names = _item(table, number, row)
        items.append((said, names))
        for text, name in zip(said, names, strict=True):
            captions.setdefault(name, []).append(text)
            groups.setdefault(name, f"{number:04d}")
    clips: dict[str, Clip] = {}
    missing = {}
    for name, texts in captions.items():
        path = next(
            (p for f in (*folders, "") if (p := files.find(f"{f}/{name}" if f else name))), None
        )
        clips[name] = Clip(
            id=name,
            path=path or home / folders[0] / name,
            captions=tuple(dict.fromkeys(texts)),
            group=groups[name],
        )
        if path is None:
            missing[name] = f"no file {folders[0]}/{name}"
    pairs = tuple(
        Pair(f"{i:04d}", tuple(said), tuple(clips[name] for name in names))
        for i, (said, names) in enumerate(items, 1)
    )
    return Dataset(card.name, home, tuple(clips.values()), card, pairs=pairs, missing=missing)


def _item(table: Path, number: int, row: Row) -> tuple[list[str], list[str]]:
    said, names = [], []
    for part in PARTS:
        # the attribute table names files twice; the second is the name in the archive
        name = (row.get(f"{part}_file.1") or row.get(f"{part}_file") or "").strip()
        text = (row.get(f"{part}_caption") or "").strip()
        there = [value not in ("", "-", "nan") for value in (text, name)]
        if all(there):
            said.append(text)
            names.append(name)
        elif any(there) or part != "triplet":
            raise DatasetError(
                f"'{table}' item {number}: {part} needs a caption and a file; "
                f"it has '{text}' and '{name}'"
            )
    if len(set(names)) < len(names):
        raise DatasetError(f"'{table}' item {number} names one file twice: {', '.join(names)}")
    return said, names
