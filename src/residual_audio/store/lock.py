"""One writer at a time. The system drops the lock when its process dies, so none is ever stale."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from residual_audio.errors import StoreError

NAME = ".lock"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the folder for writing; a second writer is refused at once."""
    path = folder / NAME
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if not _try_lock(descriptor):
            holder = _holder(descriptor)
            os.close(descriptor)
            raise StoreError(
                f"'{folder}' is being written by another process{holder}. Wait for it, or stop it; "
                "what it has finished is kept"
            )
        if _same_file(descriptor, path):
            break
        os.close(descriptor)  # the last holder removed the file between our open and our lock
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"pid": os.getpid()}).encode())
        yield
    finally:
        if os.name == "nt":  # an open file cannot be removed there
            os.close(descriptor)
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    try:
        return f" (process {json.loads(os.read(descriptor, 200))['pid']})"
    except (OSError, ValueError, KeyError):
        return ""
