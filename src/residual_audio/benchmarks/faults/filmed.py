"""What a folder looks like at every moment of every write, from one run of the work.

A process that is killed leaves its folder as it is at that moment: so one run, looked at before,
within and after each write, shows what every kill would leave. A test kills for proof. How much of
a temporary file is there makes no other state: nobody reads it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from residual_audio import files

_FILM = "film.json"
_PASSING = (0, 0, 0)
"""Stands for what a temporary file is."""


@dataclass(frozen=True)
class Film:
    """States of a folder, in a folder of their own; files that did not change are kept once."""

    kept: Path
    moments: list[tuple[str, int]]
    """Moment and file, and the number of the state: several moments may show the same."""
    states: list[dict[str, str | None]]
    """Path → kept file; None for a folder."""

    def next_mark(self, moment: int, name: str) -> int | None:
        """The first state after a moment in which a file of this name has just been written."""
        later = self.moments[moment + 1 :]
        return next((state for what, state in later if what == f"durable {name}"), None)

    def show(self, state: int, out: Path) -> Path:
        """Make a folder that looks like this."""
        out.mkdir(parents=True)
        for name, kept in self.states[state].items():
            if kept is None:
                (out / name).mkdir(parents=True, exist_ok=True)
            else:
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.kept / kept, out / name)
        return out


def film(work: Callable[[Path], None], out: Path, kept: Path) -> None:
    """Do the work in `out` and keep what every moment shows; `read_film` has it then."""
    kept.mkdir()
    camera = _Camera(out, kept)
    files.watch = camera.look
    work(out)
    files.watch = None
    shown = {"moments": camera.moments, "states": camera.states}
    (kept / _FILM).write_text(json.dumps(shown))


def read_film(kept: Path) -> Film:
    found = json.loads((kept / _FILM).read_text())
    return Film(kept, [(str(what), int(at)) for what, at in found["moments"]], found["states"])


@dataclass
class _Camera:
    out: Path
    kept: Path
    moments: list[tuple[str, int]] = field(default_factory=list)
    states: list[dict[str, str | None]] = field(default_factory=list)
    _seen: Any = None
    _n_kept: int = 0
    _known: dict[tuple[int, int, int], str] = field(default_factory=dict)

    def look(self, moment: files.Moment, path: Path) -> None:
        there = sorted(self.out.rglob("*"))
        now = {str(found.relative_to(self.out)): self._stamp(found) for found in there}
        if now != self._seen:
            # killed in the middle of writing: half of the file is there
            half = path if moment == "written" and path.is_file() else None
            self.states.append({name: self._keep(name, now[name], half) for name in now})
        self._seen = now
        self.moments.append((f"{moment} {path.name}", len(self.states) - 1))

    def _keep(self, name: str, stamp: tuple[int, int, int] | None, half: Path | None) -> str | None:
        if stamp is None:
            return None
        source = self.out / name
        if stamp in self._known:
            return self._known[stamp]
        kept = str(self._n_kept)
        self._n_kept += 1
        shutil.copy2(source, self.kept / kept)
        if source == half:
            with (self.kept / kept).open("rb+") as file:
                file.truncate(source.stat().st_size // 2)
        if stamp != _PASSING:
            self._known[stamp] = kept
        return kept

    def _stamp(self, path: Path) -> tuple[int, int, int] | None:
        if path.is_dir():
            return None
        if any(files.is_temporary(part) for part in path.relative_to(self.out).parts):
            return _PASSING
        found = path.lstat()
        return found.st_ino, found.st_mtime_ns, found.st_size
