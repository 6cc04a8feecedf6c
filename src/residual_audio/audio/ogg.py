"""Ogg: every page has a number and a checksum, so damage and gaps are found without decoding."""

from __future__ import annotations

import zlib
from typing import BinaryIO

_HEADER = 27
_LAST = 4  # flag of the page that ends a stream
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def check_ogg(file: BinaryIO, n_bytes: int) -> str | None:
    """What is wrong: a page that is damaged, missing or broken off; None for a whole file."""
    file.seek(0)
    at, following = 0, dict[bytes, int]()
    open_streams: set[bytes] = set()
    while at < n_bytes:
        head = file.read(_HEADER)
        if head[:5] != b"OggS\x00":
            if at and not open_streams:
                return None  # tags of another program behind the last page
            return f"is damaged: no Ogg page begins at byte {at}"
        table = file.read(head[26] if len(head) == _HEADER else 0)
        body = file.read(sum(table))
        if len(head) < _HEADER or len(table) < head[26] or len(body) < sum(table):
            return "is cut short: its last Ogg page is broken off"
        if ogg_crc(head[:22] + bytes(4) + head[26:] + table + body) != int.from_bytes(
            head[22:26], "little"
        ):
            return f"is damaged: the checksum of the Ogg page at byte {at} is wrong"
        stream, number = head[14:18], int.from_bytes(head[18:22], "little")
        if number != following.get(stream, number):
            return f"is damaged: Ogg pages are missing before byte {at}"
        following[stream] = number + 1
        (open_streams.discard if head[5] & _LAST else open_streams.add)(stream)
        at += _HEADER + len(table) + len(body)
    return "is cut short: its last Ogg page is missing" if open_streams else None


def ogg_crc(page: bytes) -> int:
    """CRC-32 with the bits of each byte the other way round than zlib reads them, from zero."""
    mirrored = zlib.crc32(page.translate(_MIRRORED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
    return int(f"{mirrored:032b}"[::-1], 2)
