"""Which steps of a run are up to date: a step is done again only when what it rests on changed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from residual_audio import __version__
from residual_audio.errors import InputError
from residual_audio.files import json_ready, read_json_object, write_json
from residual_audio.progress import SILENT, Progress
from residual_audio.provenance import sha256_file
from residual_audio.seals import prove_document, sealed

RECORD = "steps.json"


@dataclass(frozen=True)
class Done:
    """What a step wrote, and one line about what it found."""

    files: Iterable[Path]
    line: str


class Steps:
    """The record of a run's finished steps, kept in `run/steps.json`."""

    def __init__(self, run: Path, progress: Progress = SILENT) -> None:
        self.run = run
        self.progress = progress
        self._path = run / RECORD
        self._record: dict[str, dict[str, Any]] = _finished(self._path)

    def do(self, name: str, rests_on: object, work: Callable[[], Done]) -> bool:
        """Do a step unless it is up to date: same ground, and its files as it wrote them.

        A step that fails leaves no record, so the next run does it again.
        """
        key = digest({"version": __version__, "rests_on": rests_on})
        before = self._record.get(name)
        if before is not None and before["key"] == key and self._as_written(before["files"]):
            self.progress.note(f"{name:9} up to date · {before['line']}")
            return False
        start = time.perf_counter()
        self.forget(name)
        done = work()
        seconds = time.perf_counter() - start
        files = {str(path.relative_to(self.run)): sha256_file(path) for path in sorted(done.files)}
        for other in self._record.values():
            # a file that several steps add to belongs to the one that wrote it last
            other["files"] = {k: v for k, v in other["files"].items() if k not in files}
        self._record[name] = {
            "key": key,
            "files": files,
            "line": done.line,
            "seconds": round(seconds, 3),
        }
        write_json(self._path, sealed(self._record))
        self.progress.note(f"{name:9} {seconds:6.1f} s · {done.line}")
        return True

    def forget(self, name: str) -> None:
        """A step that was not finished is not up to date."""
        if self._record.pop(name, None) is not None:
            write_json(self._path, sealed(self._record))

    @property
    def lines(self) -> dict[str, str]:
        """Finished step → what it found."""
        return {name: step["line"] for name, step in self._record.items()}

    def _as_written(self, files: Mapping[str, str]) -> bool:
        """Another command may have put a part of a table in the place of the whole."""
        return all(
            (self.run / name).is_file() and sha256_file(self.run / name) == sha256
            for name, sha256 in files.items()
        )


def _finished(path: Path) -> dict[str, dict[str, object]]:
    """Steps on record; none where it is missing or damaged, so that they are done again."""
    try:
        found = read_json_object(path)
        prove_document(found, path)
    except InputError:
        return {}
    return {
        name: step
        for name, step in found.items()
        if isinstance(step, dict)
        and {"key", "line", "files"} <= set(step)
        and isinstance(step["files"], dict)  # earlier versions kept names without digests
    }


def digest(value: object) -> str:
    """A short name for a value that JSON can hold."""
    text = json.dumps(json_ready(value), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def contents(folder: Path, *patterns: str) -> dict[str, str]:
    """sha256 of the files below a folder, for steps that rest on them."""
    found = sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return {str(path.relative_to(folder)): sha256_file(path) for path in found}
