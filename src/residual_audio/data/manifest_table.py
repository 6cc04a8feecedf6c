"""Any collection described by a table: CSV or JSONL with path, label, caption, fold, group."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from residual_audio.data.audio_files import Files, LayoutError, nfc
from residual_audio.data.base import TEMPLATE, Card, Dataset, Pair
from residual_audio.data.metadata import read_csv, read_jsonl
from residual_audio.errors import DatasetError
from residual_audio.files import harmless
from residual_audio.types import Clip

NAMES = ("manifest.csv", "manifest.jsonl", "metadata.csv", "metadata.jsonl")
CARD = Card(
    name="manifest",
    title="A table of recordings (CSV or JSONL)",
    task="labels, captions or pairs",
    licence="yours",
    citation="",
    url="",
    layout=(
        "manifest.csv or manifest.jsonl with the columns path (below the root), and any of label, "
        "caption or captions (or caption_1 …), fold, group, pair (rows of one name are a "
        "compositional item of two or three: the first caption of each is its own)"
    ),
    download="Give the table itself, or the folder that holds it, as the root.",
    group="column group; without it each file by itself",
    options={
        "table": "the table, where it is not in the root: paths in it are still below the root",
        "allow_outside": "accept paths that leave the root (refused by default)",
        "template": "prompt with {} for the label",
    },
)


def load(
    root: Path,
    table: str | Path | None = None,
    allow_outside: bool = False,
    template: str | None = None,
) -> Dataset:
    file = Path(table) if table else root if root.is_file() else _table_in(root)
    home = root.parent if root.is_file() else root
    jsonl = file.suffix.lower() in (".jsonl", ".ndjson")
    rows: list[dict[str, Any]] = read_jsonl(file) if jsonl else list(read_csv(file, ["path"]))
    finder = _Finder(home, allow_outside)
    clips, missing, names = [], {}, _fold_numbers(file, rows)
    seen: dict[str, int] = {}
    members: dict[str, list[Clip]] = {}
    for number, row in enumerate(rows, 1):
        text = row.get("path")
        if not isinstance(text, str) or not text:
            raise DatasetError(f"'{file}' row {number} has no path; it has: {', '.join(row)}")
        path = finder.find(text)
        clip = Clip(
            id=text,
            path=path or home / text,
            label=_text(row.get("label")),
            captions=tuple(_captions(row)),
            fold=names.get(_text(row.get("fold")) or ""),
            group=_text(row.get("group")) or text,
        )
        if text in seen:
            raise DatasetError(
                f"'{file}' rows {seen[text]} and {number} have the same path '{text}'"
            )
        seen[text] = number
        clips.append(clip)
        if name := _text(row.get("pair")):
            members.setdefault(name, []).append(clip)
        if path is None:
            missing[clip.id] = f"no file {text}"
    return Dataset(
        name="manifest",
        root=home,
        clips=tuple(clips),
        classes=tuple(sorted({clip.label for clip in clips if clip.label})),
        template=template or TEMPLATE,
        card=CARD,
        pairs=tuple(_pair(file, name, own) for name, own in members.items()),
        folds={number: name for name, number in names.items()},
        missing=missing,
    )


def _pair(file: Path, name: str, clips: list[Clip]) -> Pair:
    if len(clips) not in (2, 3) or not all(clip.captions for clip in clips):
        raise DatasetError(
            f"'{file}': pair '{name}' has {len(clips)} rows: two (or three) with a caption each "
            "make an item"
        )
    return Pair(name, tuple(clip.captions[0] for clip in clips), tuple(clips))


def _table_in(root: Path) -> Path:
    for name in NAMES:
        if (root / name).is_file():
            return root / name
    raise LayoutError(f"no {', '.join(NAMES[:-1])} or {NAMES[-1]} in '{root}'")


class _Finder:
    """Resolves a path of the table, links included, and refuses what lies outside the root."""

    def __init__(self, home: Path, allow_outside: bool) -> None:
        self.files = Files(home)
        self.real = home.resolve()
        self.allow_outside = allow_outside

    def find(self, text: str) -> Path | None:
        if "\0" in text:
            raise DatasetError(f"the path {text!r} in the table is not a file name")
        where = (self.files.root / text).resolve()
        inside = where.is_relative_to(self.real)
        if not inside and not self.allow_outside:
            raise DatasetError(
                f"the path '{text}' in the table leads to '{where}', outside '{self.real}'; "
                "allow it with allow_outside=True (--data-option allow_outside=true; of `datasets "
                "check`: --allow-outside) if you trust the table"
            )
        if where.is_file():
            return where
        try:
            below = where.relative_to(self.real).as_posix() if inside else None
            found = self.files.find(below) if below else None
        except DatasetError:
            return None
        # the unicode or suffix variant may be a link of its own
        if found and not self.allow_outside and not found.resolve().is_relative_to(self.real):
            raise DatasetError(f"'{found}' is a link that leaves '{self.real}'")
        return found if found and found.is_file() else None


def _text(value: object) -> str | None:
    return None if value is None or str(value).strip() == "" else nfc(harmless(str(value))).strip()


def _captions(row: dict[str, object]) -> Iterable[str]:
    for name, value in row.items():
        if name in ("caption", "captions") or name.startswith("caption_"):
            for text in value if isinstance(value, list) else [value]:
                if found := _text(text):
                    yield found


def _fold_numbers(file: Path, rows: list[dict[str, object]]) -> dict[str, int]:
    """Folds may be numbers or names (train, test): names are numbered in order of appearance."""
    folds = list(dict.fromkeys(f for row in rows if (f := _text(row.get("fold"))) is not None))
    if all(fold.isdigit() for fold in folds):
        return {fold: int(fold) for fold in sorted(folds, key=int)}
    return {fold: i for i, fold in enumerate(folds, 1)}
