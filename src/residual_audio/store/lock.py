"""One writer at a time. The system drops the lock when its process dies, so none is ever stale."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from residual_audio.errors import StoreError

NAME = ".lock"
HOLDER = ".lock-holder"
NAMES = (NAME, HOLDER)
# what file systems without locks say (Lustre without -o flock, some network and FUSE mounts)
_NO_LOCKS = {
    getattr(errno, name)
    for name in ("ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP", "EINVAL")
    if hasattr(errno, name)
}


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the folder for writing; a second writer is refused at once."""
    held = _acquire(folder)
    holder = folder / HOLDER
    try:
        with contextlib.suppress(OSError):  # only to say who it is
            holder.write_text(json.dumps({"pid": os.getpid()}))
        yield
    finally:
        for path in (holder, folder / NAME):
            # while it is held: whoever opened it meanwhile sees that it is gone, and tries again
            with contextlib.suppress(OSError):  # Windows keeps open files
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a folder that vanished took its lock along
            held.release()


def _acquire(folder: Path) -> BaseFileLock:
    path = str(folder / NAME)
    kinds: tuple[type[BaseFileLock], ...] = (FileLock, SoftFileLock)
    for kind in kinds:
        lock = kind(path, timeout=0)
        try:
            lock.acquire()
            return lock
        except Timeout:
            raise StoreError(
                f"'{folder}' is being written by another process{_holder(folder)}. Wait for it, or "
                "stop it; what it has finished is kept"
                + (f". If there is none, remove '{path}'" if kind is SoftFileLock else "")
            ) from None
        except NotImplementedError:
            continue
        except OSError as error:
            if kind is FileLock and error.errno in _NO_LOCKS:
                continue
            raise StoreError(f"'{folder}' cannot be written: {error.strerror or error}") from error
    raise StoreError(f"the file system of '{folder}' has no locks, and none could be made up")


def _holder(folder: Path) -> str:
    try:
        return f" (process {json.loads((folder / HOLDER).read_text())['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
