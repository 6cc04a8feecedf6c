"""Rarer containers that say how many samples they hold: AU, CAF, Wave64 and the MP4 family."""

from __future__ import annotations

import math
import struct
from typing import BinaryIO

_CHUNKS_MAX = 10_000
_W64_DATA = b"data\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"
_NO_SAMPLES = "is cut short: it ends before its samples begin"


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
    at = 8
    for _ in range(_CHUNKS_MAX):
        if at >= n_bytes:
            return _NO_SAMPLES
        file.seek(at)
        head = file.read(12)
        if len(head) < 12:
            return _NO_SAMPLES
        name, size = struct.unpack(">4sq", head)
        if name == b"desc":
            rate_hz = struct.unpack(">d", file.read(8).rjust(8, b"\0"))[0]
            if not (math.isfinite(rate_hz) and rate_hz >= 1):
                return f"says its sample rate is {rate_hz:g} Hz: its header is damaged"
        if name == b"data":
            return None if size == -1 else _reaches(at + 12, size, n_bytes)
        if size < 0:
            return "is damaged: a chunk has no size"
        at += 12 + size
    return "is damaged: it has no samples among its first chunks"


def check_w64(file: BinaryIO, n_bytes: int) -> str | None:
    """Wave64: RIFF with names of 16 bytes and sizes of 8 that count their own header."""
    at = 40
    for _ in range(_CHUNKS_MAX):
        if at >= n_bytes:
            return _NO_SAMPLES
        file.seek(at)
        head = file.read(24)
        if len(head) < 24:
            return _NO_SAMPLES
        size = int.from_bytes(head[16:24], "little")
        if head[:16] == _W64_DATA:
            return _reaches(at + 24, size - 24, n_bytes)
        if size < 24:
            return "is damaged: a chunk has no size"
        at += (size + 7) // 8 * 8
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
