"""A real disk that is too small: a tmpfs of so many bytes, which only the child sees."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from residual_audio import files
from residual_audio.benchmarks.faults.children import in_child, quietly
from residual_audio.benchmarks.faults.commands import Said, extract_to, run_command
from residual_audio.benchmarks.faults.crashes import contents

ENOUGH = 64 * 2**20
_CLONE_NEWNS, _MS_REMOUNT, _MS_REC, _MS_PRIVATE = 0x20000, 0x20, 0x4000, 0x40000


def can_mount() -> bool:
    """Whether this system lets us make a disk: Linux, and a user who may."""
    return sys.platform == "linux" and os.geteuid() == 0 and in_child(_try_to_mount) == 0


def sizes(whole: Path, n: int) -> list[int]:
    """From next to nothing to nearly enough for what lies in a folder, in whole pages."""
    page = os.sysconf("SC_PAGE_SIZE")
    needed = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    pages = {max(1, int(needed * (i + 1) / (n + 1)) // page) for i in range(n)}
    return [page * count for count in sorted(pages)]


def too_small(size: int, out: Path, whole: dict[str, str]) -> str | None:
    """An extraction on a disk of so many bytes, and again on one that has become larger."""
    out.mkdir()
    verdict = out.with_suffix(".verdict")
    if in_child(partial(_both, size, out, whole, verdict)):
        return f"{size} bytes: the disk could not be made"
    problem = json.loads(verdict.read_text())
    return problem and f"a disk of {size} bytes: {problem}"


def _both(size: int, out: Path, whole: dict[str, str], verdict: Path) -> None:
    _own_mounts()
    _mount(out, size)
    verdict.write_text(json.dumps(_judge(out, whole)))


def _judge(out: Path, whole: dict[str, str]) -> str | None:
    said_in = out.with_suffix(".said")
    arguments = extract_to(out)
    trouble = _forked(partial(run_command, arguments, said_in, None), said_in).trouble((1,))
    if trouble:
        return trouble
    left = [name for name in contents(out) if files.is_temporary(name)]
    if left:
        return f"{left[0]} stays"
    _mount(out, ENOUGH, _MS_REMOUNT)
    trouble = _forked(partial(run_command, arguments, said_in, None), said_in).trouble((0,))
    if trouble:
        return f"the next start: {trouble}"
    return None if contents(out) == whole else "other files than undisturbed"


def _forked(work: Callable[[], None], said_in: Path) -> Said:
    """In a fork of this process, which has one thread."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = quietly(work)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Said(code, said_in.read_text(errors="replace"))


def _try_to_mount() -> None:
    _own_mounts()
    _mount(Path("/proc/self/cwd").resolve(), ENOUGH)


def _own_mounts() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no mounts of its own")


def _mount(where: Path, size: int, flags: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(where), b"tmpfs", flags, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), "no disk", str(where))
