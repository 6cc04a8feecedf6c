"""Finding the files that metadata names, safely: below the root, in either unicode form."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from residual_audio.errors import DatasetError


class LayoutError(DatasetError):
    """A folder that is not laid out like the release."""


AUDIO_SUFFIXES = (
    ".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au", ".caf",
    ".w64", ".m4a", ".mp4", ".aac", ".wma", ".webm",
)  # fmt: skip


def is_audio(name: str) -> bool:
    """By suffix; `._name` files are the shadows macOS leaves in archives."""
    return name.lower().endswith(AUDIO_SUFFIXES) and not name.startswith("._")


def nfc(text: str) -> str:
    """One spelling for names that look the same: é may be one code point or two."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


# a folder on disk, its names and its audio files without suffix, both by their NFC form
_Listing = tuple[Path, dict[str, str], dict[str, list[str]]]


class Files:
    """Names below a root, looked up folder by folder (each listed once)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listed: dict[str, _Listing] = {}

    def find(self, relative: str) -> Path | None:
        """The file metadata means: by name, in either unicode form, or else the same name with
        another audio suffix (a release re-encoded). None where there is none."""
        checked(relative)
        folder, _, name = nfc(relative).rpartition("/")
        real, names, stems = self._list(folder)
        if name in names:
            return real / names[name]
        stem, dot, suffix = name.rpartition(".")
        others = stems.get(stem, []) if dot and f".{suffix}".lower() in AUDIO_SUFFIXES else []
        return real / others[0] if others else None

    def _list(self, folder: str) -> _Listing:
        """A folder by its name in NFC; one that is not there is empty."""
        if folder not in self._listed:
            above, _, last = folder.rpartition("/")
            real = self.root
            if folder:
                parent, siblings, _ = self._list(above)
                real = parent / siblings.get(last, last)
            names: dict[str, str] = {}
            stems: dict[str, list[str]] = {}
            try:
                found = sorted(os.listdir(real))
            except OSError:
                found = []
            for name in found:
                names.setdefault(nfc(name), name)
                if is_audio(name):
                    stems.setdefault(nfc(name).rpartition(".")[0], []).append(name)
            self._listed[folder] = (real, names, stems)
        return self._listed[folder]


def checked(relative: str, where: str = "the metadata") -> None:
    """Refuse a path of a release's metadata that leaves its folder: it never has reason to."""
    # "//": an absolute name behind a folder, which joining paths would follow
    absolute = relative.startswith("/") or "//" in relative
    if not relative or absolute or "\0" in relative or ".." in relative.split("/"):
        raise DatasetError(f"the path '{relative}' in {where} leaves the folder of the data set")


def below(root: Path, *places: str) -> Path:
    """The first of these places that exists, in the root or in one folder below it (people unpack
    `ESC-50-master/` into the folder they name)."""
    inner = sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
    for folder in (root, *inner):
        for place in places:
            if (folder / place).exists():
                return folder / place
    raise LayoutError(f"no {' or '.join(places)} in '{root}' (nor in a folder directly below it)")


def walk_audio(folder: Path) -> Iterable[Path]:
    """Audio files of a folder and its sub-folders in a fixed order; linked folders are followed,
    each real folder once."""
    seen: set[str] = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted((f for f in folders if not f.startswith(".")), key=nfc)
        for name in sorted(names, key=nfc):
            if is_audio(name):
                yield Path(here) / name


def readable(name: str) -> str:
    """A label as it is said: "door_wood_knock" → "door wood knock"."""
    return re.sub(r"[_\s]+", " ", nfc(name)).strip()
