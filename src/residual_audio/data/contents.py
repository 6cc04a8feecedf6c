"""What a file holds, as a digest: read once, then known by its size and its times of change.

The digests of a folder are kept in one file of the user's cache. A file is read again when its
size, its time of modification or its time of change differ; a file that was changed a moment ago
is always read, because a second change may fall into the same tick of the clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from residual_audio.files import cache_dir, write_bytes
from residual_audio.provenance import sha256_file

_TICK_NS = 2_000_000_000  # the coarsest clock of a file system in use (FAT)
_READERS = 4

State = tuple[int, int, int]
"""Size, time of modification and time of change in ns."""


def content_digests(paths: Sequence[Path]) -> list[str | None]:
    """sha256 of each file's bytes, in order; None where there is no file to read."""
    places = [os.path.split(os.path.abspath(path)) for path in paths]
    folders = {folder: _Folder(folder) for folder in {folder for folder, _ in places}}

    def digest(place: tuple[str, str]) -> str | None:
        return folders[place[0]].digest(place[1])

    with ThreadPoolExecutor(_READERS) as readers:
        found = list(readers.map(digest, places))
    for folder in folders.values():
        folder.keep()
    return found


class _Folder:
    """The digests of one folder's files, as far as they are known."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        named = hashlib.sha256(os.fsencode(path)).hexdigest()
        self._file = cache_dir() / "contents" / named[:2] / f"{named}.json"
        self._known = _read(self._file)
        self._learnt = False

    def digest(self, name: str) -> str | None:
        path = self.path / name
        try:
            state = _state(path)
            if name in self._known and self._known[name][0] == state:
                return self._known[name][1]
            if not path.is_file():  # reading a pipe or a device would never end
                return None
            found = sha256_file(path)
            settled = max(state[1:]) + _TICK_NS < time.time_ns()
            if settled and state == _state(path):
                self._known[name] = (state, found)
                self._learnt = True
        except (OSError, ValueError):
            return None
        return found

    def keep(self) -> None:
        if not self._learnt:
            return
        text = json.dumps({name: [*state, found] for name, (state, found) in self._known.items()})
        digest = hashlib.sha256(text.encode()).hexdigest()
        with suppress(OSError):  # without a cache the files are read again
            write_bytes(self._file, f"{digest}\n{text}\n".encode())


def _state(path: Path) -> State:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path) -> dict[str, tuple[State, str]]:
    """What was kept; nothing where it is missing or damaged."""
    try:
        digest, text, _ = path.read_bytes().split(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != digest:
            return {}
        found = json.loads(text)
    except (OSError, ValueError):
        return {}
    return {name: ((size, modified, changed), sha256)
            for name, (size, modified, changed, sha256) in found.items()}  # fmt: skip
