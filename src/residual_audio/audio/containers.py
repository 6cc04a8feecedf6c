"""Rarer containers that say how many samples they hold: AU, CAF, Wave64 and the MP4 family."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

_CHUNKS_MAX = 10_000
_W64_DATA = b"data\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"
_NO_SAMPLES = "is cut short: it ends before its samples begin"
_NO_SIZE = "is damaged: a chunk has no size"


@dataclass(frozen=True)
class WalkEnd:
    """The end of a walk through chunks: what is wrong, or None where all is well."""

    problem: str | None


def check_au(file: BinaryIO, n_bytes: int) -> str | None:
    """Sun/NeXT: offset and size of the samples stand in the header."""
    file.seek(0)
    head = file.read(24)
    if len(head) < 24:
        return "is cut short: it ends inside its header"
    order = ">" if head[:4] == b".snd" else "<"
    start, size, _, rate_hz = struct.unpack(f"{order}4I", head[4:20])
    if rate_hz == 0:
        return "says its sample rate is 0 Hz: its header is damaged"
    return None if size == 0xFFFF_FFFF else _reaches(start, size, n_bytes)


def check_caf(file: BinaryIO, n_bytes: int) -> str | None:
    """Core Audio: chunks with sizes; only that of the samples may be left open."""

    def look(at: int, head: bytes) -> WalkEnd | int:
        name, size = struct.unpack(">4sq", head)
        if name == b"desc":
            rate_hz = struct.unpack(">d", file.read(8).rjust(8, b"\0"))[0]
            if not (math.isfinite(rate_hz) and rate_hz >= 1):
                return WalkEnd(f"says its sample rate is {rate_hz:g} Hz: its header is damaged")
        if name == b"data":
            return WalkEnd(None if size == -1 else _reaches(at + 12, size, n_bytes))
        return WalkEnd(_NO_SIZE) if size < 0 else 12 + size

    return _walk(file, n_bytes, 8, 12, look)


def check_w64(file: BinaryIO, n_bytes: int) -> str | None:
    """Wave64: RIFF with names of 16 bytes and sizes of 8 that count their own header."""

    def look(at: int, head: bytes) -> WalkEnd | int:
        size = int.from_bytes(head[16:24], "little")
        if head[:16] == _W64_DATA:
            return WalkEnd(_reaches(at + 24, size - 24, n_bytes))
        return WalkEnd(_NO_SIZE) if size < 24 else (size + 7) // 8 * 8

    return _walk(file, n_bytes, 40, 24, look)


def _walk(
    file: BinaryIO, n_bytes: int, at: int, n_head: int, look: Callable[[int, bytes], WalkEnd | int]
) -> str | None:
    """From chunk to chunk until `look` has found something; else it says how far the next is."""
    for _ in range(_CHUNKS_MAX):
        head = b""
        if at < n_bytes:  # a size that lies may point further than any file reaches
            file.seek(at)
            head = file.read(n_head)
        if len(head) < n_head:
            return _NO_SAMPLES
        found = look(at, head)
        if isinstance(found, WalkEnd):
            return found.problem
        at += found
    return "is damaged: it has no samples among its first chunks"


def check_mp4(file: BinaryIO, n_bytes: int) -> str | None:
    """MP4, M4A: boxes end to end; the last must end with the file."""
    at = 0
    for _ in range(_CHUNKS_MAX):
        if at >= n_bytes:
            return None
        file.seek(at)
        head = file.read(16)
        if len(head) < 8:
            return "is cut short: its last box is broken off"
        size = int.from_bytes(head[:4], "big")
        if size == 0:  # to the end of the file
            return None
        if size == 1:
            size = int.from_bytes(head[8:16], "big")
        if size < 8:
            return f"is damaged: the box at byte {at} has no size"
        if at + size > n_bytes:
            return f"is cut short: its header promises {at + size} bytes, {n_bytes} are there"
        at += size
    return None


def _reaches(start: int, size: int, n_bytes: int) -> str | None:
    there = max(0, n_bytes - start)
    if 0 <= size <= there:
        return None
    return f"is cut short: its header promises {size} bytes of samples, {there} are there"
