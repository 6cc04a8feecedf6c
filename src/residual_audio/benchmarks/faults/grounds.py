"""What campaigns start from: made once in a process, however many of them start there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from residual_audio.benchmarks.faults.children import in_child
from residual_audio.errors import EngineError

Make = Callable[[Path], None]
"""Adds to a folder; a function of a module, or a `partial` of one."""


def stand_on(makes: Sequence[Make], out: Path) -> Path:
    """A new folder in which all of these were done, one after the other."""
    if not makes:
        out.mkdir()
        return out
    return Path(shutil.copytree(_ground(tuple(makes)), out))


def _ground(makes: tuple[Make, ...]) -> Path:
    made = _room() / str(hash(tuple(_name(make) for make in makes)))
    if not made.is_dir():
        begun = stand_on(makes[:-1], made.with_suffix(".begun"))
        if in_child(partial(makes[-1], begun)):
            raise EngineError(
                f"what the campaign starts from could not be made: {_name(makes[-1])}"
            )
        begun.rename(made)
    return made


def _name(make: Make) -> str:
    if isinstance(make, partial):
        return f"{make.func.__qualname__}{make.args}{make.keywords}"
    return make.__qualname__


@cache
def _room() -> Path:
    _rooms.append(tempfile.TemporaryDirectory(prefix="residual-audio-grounds-"))
    return Path(_rooms[-1].name)


_rooms: list[tempfile.TemporaryDirectory[str]] = []
"""Removed when the process ends."""
