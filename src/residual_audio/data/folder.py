"""Your own sounds: one sub-folder a class. A folder without sub-folders is a set without labels."""

from __future__ import annotations

import os
import re
from pathlib import Path

from residual_audio.data.audio_files import is_audio, nfc, readable, walk_audio
from residual_audio.data.base import Card, Dataset
from residual_audio.errors import DatasetError, InputError
from residual_audio.files import shown
from residual_audio.types import Clip

CARD = Card(
    name="folder",
    title="A folder of sounds, one sub-folder a class",
    task="labels",
    licence="yours",
    citation="",
    url="",
    layout="<class>/**/*.wav (or flac, ogg, mp3, …)",
    download="Put the recordings of each class into a sub-folder named after it.",
    group="each file by itself, or what `group` finds in its name",
    options={
        "group": "regular expression searched in the path below the class folder; its first group "
        "(or whole match) names the recording, speaker or song that splits must keep together",
        "template": "prompt with {} for the class name",
    },
)


def load(root: Path, group: str | None = None, template: str | None = None) -> Dataset:
    if not root.is_dir():
        raise DatasetError(f"'{root}' is not a folder")
    pattern = _pattern(group)
    found = [path for path in root.iterdir() if not path.name.startswith(".")]
    inner = sorted((path for path in found if path.is_dir()), key=lambda path: nfc(path.name))
    loose = sorted((path for path in found if path.is_file() and is_audio(path.name)), key=str)
    clips: list[Clip] = []
    ignored: dict[str, str] = {}
    for folder in inner:
        before = len(clips)
        label = readable(shown(folder.name))
        clips += [_clip(root, path, label, pattern) for path in walk_audio(folder)]
        if len(clips) == before:
            ignored[shown(folder.name)] = "no audio files in it"
    if clips:
        ignored |= {shown(path.name): "not in a class folder" for path in loose}
    else:
        clips = [_clip(root, path, None, pattern) for path in loose]
    _check_names(clips)
    if not clips:
        raise DatasetError(f"no audio files in '{root}' or its sub-folders. {CARD.download}")
    return Dataset(
        name="folder",
        root=root,
        clips=tuple(clips),
        classes=tuple(sorted({clip.label for clip in clips if clip.label})),
        template=template or "This is a sound of {}.",
        card=CARD,
        ignored=ignored,
    )


def _check_names(clips: list[Clip]) -> None:
    """Two files may look the same on a screen and be two on disk."""
    seen: dict[str, Clip] = {}
    for clip in clips:
        other = seen.setdefault(clip.id, clip)
        if other is not clip:
            raise DatasetError(
                f"two files are both named '{clip.id}', spelt with different code points (NFC and "
                f"NFD) or bytes: rename one of {os.fsencode(str(other.path))!r} and "
                f"{os.fsencode(str(clip.path))!r}"
            )


def _pattern(group: str | None) -> re.Pattern[str] | None:
    try:
        return None if group is None else re.compile(group)
    except re.error as error:
        raise InputError(f"'{group}' is not a regular expression: {error}") from None


def _clip(root: Path, path: Path, label: str | None, pattern: re.Pattern[str] | None) -> Clip:
    name = nfc(shown(path.relative_to(root).as_posix()))
    found = pattern.search(name.partition("/")[2] or name) if pattern else None
    # without a match, and where the bracketed part took no part in it, the file stands alone
    group = (found.group(1 if found.re.groups else 0) if found else None) or name
    return Clip(id=name, path=path, label=label, group=group)
