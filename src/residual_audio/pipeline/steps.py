"""Which steps of a run are up to date: a step is done again only when what it rests on changed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from residual_audio import __version__
from residual_audio.files import json_ready, read_json, write_json

RECORD = "steps.json"


class Steps:
    """The record of a run's finished steps, kept in `run/steps.json`."""

    def __init__(self, run: Path, echo: Callable[[str], None]) -> None:
        self.run = run
        self.echo = echo
        self._path = run / RECORD
        found = read_json(self._path) if self._path.is_file() else {}
        self.record: dict[str, dict[str, Any]] = found if isinstance(found, dict) else {}

    def do(self, name: str, rests_on: Any, work: Callable[[], tuple[Iterable[Path], str]]) -> bool:
        """Do a step unless it is up to date; `work` gives the files it wrote and one line to print.

        A step that fails leaves no record, so the next run does it again.
        """
        key = digest({"version": __version__, "rests_on": rests_on})
        before = self.record.get(name)
        if before is not None and before["key"] == key and self._all_there(before["files"]):
            self.echo(f"{name:9} up to date · {before['line']}")
            return False
        start = time.perf_counter()
        self.record.pop(name, None)
        files, line = work()
        seconds = time.perf_counter() - start
        self.record[name] = {
            "key": key,
            "files": sorted(str(path.relative_to(self.run)) for path in files),
            "line": line,
            "seconds": round(seconds, 3),
        }
        write_json(self._path, self.record)
        self.echo(f"{name:9} {seconds:6.1f} s · {line}")
        return True

    def _all_there(self, files: Iterable[str]) -> bool:
        return all((self.run / name).is_file() for name in files)

    @property
    def seconds(self) -> float:
        return sum(float(step["seconds"]) for step in self.record.values())


def digest(value: Any) -> str:
    """A short name for a value that JSON can hold."""
    text = json.dumps(json_ready(value), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def contents(folder: Path, *patterns: str) -> dict[str, str]:
    """sha256 of the files below a folder, for steps that rest on them."""
    found = sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
    }
