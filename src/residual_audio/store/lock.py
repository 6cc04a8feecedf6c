"""One writer at a time. The system drops the lock when its process dies, so none is ever stale."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from residual_audio.errors import StoreError

NAME = ".lock"
_PART = ".lock-part-"
_HOLDER = "-holder"
_LOOK_S = 2.0
"""Somebody else may be looking, too."""
# what file systems without locks say (Lustre without -o flock, some network and FUSE mounts)
_NO_LOCKS = {
    getattr(errno, name)
    for name in ("ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP", "EINVAL")
    if hasattr(errno, name)
}


def is_lock(name: str) -> bool:
    """Whether a file is a lock, or says who holds one."""
    return name.removesuffix(_HOLDER) == NAME or name.startswith(_PART)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the folder for writing; a second writer is refused at once, of parts too."""
    with _held(folder, NAME):
        for path in folder.glob(f"{_PART}*"):
            if not path.name.endswith(_HOLDER):
                _look(folder, path.name)
        yield


@contextmanager
def writing_part(folder: Path, part: str) -> Iterator[None]:
    """Hold one part of the folder: other parts may be written meanwhile, the whole may not."""
    # Each side holds its own before it looks at the other: never do both go on.
    with _held(folder, f"{_PART}{part}"):
        _look(folder, NAME)
        yield


def _look(folder: Path, name: str) -> None:
    """Refuse where another process holds this lock, and remove one that nobody holds."""
    if (folder / name).exists():
        with _held(folder, name, _LOOK_S):
            pass


@contextmanager
def _held(folder: Path, name: str, patience_s: float = 0) -> Iterator[None]:
    held = _acquire(folder, name, patience_s)
    holder = folder / f"{name}{_HOLDER}"
    try:
        with contextlib.suppress(OSError):  # only to say who it is
            holder.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        for path in (holder, folder / name):
            # while it is held: whoever opened it meanwhile sees that it is gone, and tries again
            with contextlib.suppress(OSError):  # Windows keeps open files
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a folder that vanished took its lock along
            held.release()


def _acquire(folder: Path, name: str, patience_s: float) -> BaseFileLock:
    path = str(folder / name)
    what = f"part {name.removeprefix(_PART)} of '{folder}'" if name != NAME else f"'{folder}'"
    kinds: tuple[type[BaseFileLock], ...] = (FileLock, SoftFileLock)
    for kind in kinds:
        lock = kind(path, timeout=patience_s)
        try:
            lock.acquire()
            return lock
        except Timeout:
            # a file that merely exists says less than a lock that the system holds
            raise StoreError(
                f"{what} is being written by another process{_holder(folder, name)}. Wait for it, "
                "or stop it; what it has finished is kept"
                if kind is FileLock
                else f"{what} may be being written{_holder(folder, name)}: its file system has no "
                f"locks, so a process that was killed leaves '{path}' behind. If no process "
                "writes there, remove that file"
            ) from None
        except NotImplementedError:
            continue
        except OSError as error:
            if kind is FileLock and error.errno in _NO_LOCKS:
                continue
            raise StoreError(f"{what} cannot be written: {error.strerror or error}") from error
    raise StoreError(f"the file system of '{folder}' has no locks, and none could be made up")


def _holder(folder: Path, name: str) -> str:
    try:
        found = json.loads((folder / f"{name}{_HOLDER}").read_text())
        return f" (process {found['pid']} on {found['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
