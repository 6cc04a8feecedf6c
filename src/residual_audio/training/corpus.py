"""Texts to learn from: caption files, titles made readable, phrases cut from captions."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from residual_audio.errors import InputError
from residual_audio.training.recipe import TextFile

_EXTENSION = re.compile(r"\.(wav|aiff?|mp3|ogg|flac|m4a)\b", re.IGNORECASE)
_JOINT = re.compile(
    r",|;|\.|\bfollowed by\b|\bwhile\b|\bwith\b|\band then\b|\bthen\b|\bas\b|\band\b|\bbefore\b"
    r"|\bafter\b|\bin the background\b|\bnearby\b|\bin the distance\b"
)


def readable_title(title: str) -> str:
    """`Vacuum_Cleaner-Samsung 1300.wav` → `vacuum cleaner samsung`."""
    text = _EXTENSION.sub(" ", title)
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    words = re.findall(r"[^\W\d_]{2,}", text)
    return " ".join(words).lower()


def read_rows(root: Path, source: TextFile) -> Iterable[tuple[str | None, list[str]]]:
    """(clip's file name or None, texts) for each row of a caption file."""
    path = root / source.file
    if not path.is_file():
        raise InputError(f"no caption file '{source.file}' below the data root '{root}'")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        needed = {
            *source.columns,
            *source.where,
            *source.starts,
            *([source.key] if source.key else []),
        }
        if absent := sorted(needed - set(reader.fieldnames or ())):
            raise InputError(f"caption file '{source.file}' has no column '{absent[0]}'")
        for row in reader:
            if any(row[column] != value for column, value in source.where.items()):
                continue
            if any(not row[column].startswith(begin) for column, begin in source.starts.items()):
                continue
            texts = [(row[column] or "").strip() for column in source.columns]
            if source.kind == "title":
                texts = [readable_title(text) for text in texts]
            yield row[source.key] if source.key else None, [text for text in texts if text]


def texts_by_clip(root: Path, sources: Sequence[TextFile]) -> dict[str, list[str]]:
    """File stem of a clip → its own texts."""
    found: dict[str, list[str]] = {}
    for source in sources:
        if source.key is None:
            raise InputError(f"caption file '{source.file}' needs a key: the column of file names")
        for name, texts in read_rows(root, source):
            found.setdefault(Path(str(name)).stem, []).extend(texts)
    return found


def corpus(
    root: Path,
    sources: Sequence[TextFile],
    hold_out: Sequence[TextFile],
    extra: Iterable[str],
    n_phrases: int,
    seed: int,
) -> list[str]:
    """Every text once, in a fixed order, without those held out; then phrases, then `extra`."""
    kept_out = {t.casefold() for s in hold_out for _, texts in read_rows(root, s) for t in texts}
    captions = _unique(t for s in sources for _, texts in read_rows(root, s) for t in texts)
    captions = [text for text in captions if text.casefold() not in kept_out]
    phrases = _unique(phrase for text in captions for phrase in cut_phrases(text))
    if n_phrases < len(phrases):
        chosen = np.random.default_rng(seed).permutation(len(phrases))[:n_phrases]
        phrases = [phrases[i] for i in sorted(chosen)]
    return [t for t in _unique([*captions, *phrases, *extra]) if t.casefold() not in kept_out]


def cut_phrases(caption: str) -> list[str]:
    """`A dog barks while rain falls` → `a dog barks`, `rain falls`."""
    parts = [part.strip(" .,;").lower() for part in _JOINT.split(caption)]
    return [part for part in parts if 1 <= len(part.split()) <= 6 and len(part) > 2]


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))
