"""What lies where in a tar file, from its headers alone; contents are passed over, not read."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from residual_audio.data.audio_files import AUDIO_SUFFIXES, checked
from residual_audio.errors import DatasetError
from residual_audio.files import parse_json, shown

_NOTE_MAX = 1_000_000
"""Bytes of a .json or .txt beside a sound."""
_SOUND_MAX = 2_000_000_000


@dataclass
class TarSample:
    """Members of one name: a sound, and what is said about it."""

    key: str
    sound: tuple[int, int] | None = None
    """First byte and size."""
    json: dict[str, Any] = field(default_factory=dict)
    text: str | None = None


def tar_samples(path: Path) -> Iterator[TarSample]:
    """In order. Refuses an archive that is cut short, compressed, or names files outside itself."""
    n_bytes = path.stat().st_size
    current: TarSample | None = None
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined]  # it would keep every one of them
                if not member.isreg():
                    continue  # links and devices are never followed
                within = shown(member.name.removeprefix("./"))
                checked(within, f"a member of '{path}'")
                end = member.offset_data + member.size
                if member.size < 0 or member.sparse or end > n_bytes:
                    raise DatasetError(
                        f"'{path}' is cut short or damaged: '{member.name}' reaches beyond its end"
                    )
                folder, slash, name = within.rpartition("/")
                stem, _, suffix = name.partition(".")
                key = f"{folder}{slash}{stem}"
                if current is None or current.key != key:
                    if current is not None:
                        yield current
                    current = TarSample(key)
                _take(current, path, tar, member, suffix.lower())
    except (tarfile.TarError, EOFError, OverflowError, ValueError) as error:
        raise DatasetError(f"'{path}' is not a whole plain tar file: {error}") from error
    if current is not None:
        yield current


def _take(
    sample: TarSample, path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, suffix: str
) -> None:
    if f".{suffix}" in AUDIO_SUFFIXES:
        if sample.sound is not None:
            raise DatasetError(f"'{path}' has two sounds of the name '{sample.key}'")
        if member.size > _SOUND_MAX:
            raise DatasetError(f"'{member.name}' in '{path}' has {member.size:,} bytes")
        sample.sound = (member.offset_data, member.size)
    elif suffix in ("json", "txt"):
        if member.size > _NOTE_MAX:
            raise DatasetError(f"'{member.name}' in '{path}' has {member.size:,} bytes of text")
        handle = tar.extractfile(member)
        text = (handle.read() if handle else b"").decode("utf-8", "replace")
        if suffix == "txt":
            sample.text = text.strip()
            return
        try:
            found = parse_json(text)
        except ValueError as error:
            raise DatasetError(f"'{member.name}' in '{path}' is not JSON") from error
        sample.json = found if isinstance(found, dict) else {}
