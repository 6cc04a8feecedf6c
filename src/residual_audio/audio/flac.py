"""Does a FLAC file's header speak of the frames that follow it?

Frames carry checksums that the decoder proves; the header carries none, and a wrong rate or length
in it would be believed. But every frame says its own rate, and the last one where it ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import BinaryIO

from residual_audio.audio.integrity import id3_length

_BLOCKS_MAX = 1000
_LONGEST_HEADER = 16
_TAIL_MAX = 2**20
_SYNC = re.compile(rb"\xff[\xf8\xf9]")
_RATES_HZ = {
    1: 88_200, 2: 176_400, 3: 192_000, 4: 8_000, 5: 16_000, 6: 22_050, 7: 24_000, 8: 32_000,
    9: 44_100, 10: 48_000, 11: 96_000,
}  # fmt: skip


@dataclass(frozen=True)
class FlacHeader:
    """STREAMINFO, as far as it matters here."""

    block_size: int
    """Samples a frame, but for the last; the largest where they differ."""
    rate_hz: int
    channels: int
    bits: int
    n_samples: int | None
    """A channel; None where it was left open."""

    @classmethod
    def parse(cls, block: bytes) -> FlacHeader:
        packed = int.from_bytes(block[10:18], "big")  # 20 rate, 3 channels, 5 bits, 36 samples
        return cls(
            int.from_bytes(block[2:4], "big"),
            packed >> 44,
            (packed >> 41 & 7) + 1,
            (packed >> 36 & 31) + 1,
            packed & 0xF_FFFF_FFFF or None,
        )


def check_flac(file: BinaryIO) -> tuple[str | None, int | None]:
    """What is wrong, and the samples a channel that STREAMINFO promises (None: left open)."""
    file.seek(0)
    head = file.read(10)
    at = id3_length(head) if head[:3] == b"ID3" else 0
    file.seek(at)
    block = file.read(8 + 34)  # marker, block header, STREAMINFO
    if len(block) < 8 + 34:
        return "is cut short: it ends inside its header", None
    says = FlacHeader.parse(block[8:])
    first = _first_frame(file, at + 4)
    rate_hz = None if first is None else _rate_hz(first)
    if rate_hz not in (None, says.rate_hz):
        return f"is damaged: its header says {says.rate_hz} Hz, its frames {rate_hz} Hz", None
    if says.n_samples is not None and (end := _ends_at(file, says)) is not None:
        return f"is damaged: its header says {says.n_samples} samples, its frames {end}", None
    return None, says.n_samples


def _first_frame(file: BinaryIO, at: int) -> bytes | None:
    """The header of the first frame, behind all blocks of tags and pictures."""
    for _ in range(_BLOCKS_MAX):
        file.seek(at)
        head = file.read(4)
        if len(head) < 4:
            return None
        at += 4 + int.from_bytes(head[1:], "big")
        if head[0] & 0x80:
            file.seek(at)
            return _header_at(file.read(_LONGEST_HEADER), 0)
    return None


def _ends_at(file: BinaryIO, says: FlacHeader) -> int | None:
    """Where the sound ends by its last frame, if that is beyond what the header says."""
    longest = says.block_size * says.channels * (says.bits // 8 + 1) + 64
    n_bytes = file.seek(0, 2)
    file.seek(max(0, n_bytes - min(max(2**16, 2 * longest), _TAIL_MAX)))
    tail = file.read()
    found = (_header_at(tail, mark.start()) for mark in _SYNC.finditer(tail))
    ends = {_end_of(header, says.block_size) for header in found if header is not None}
    # a frame begins by chance here and there, but the last one is among them
    last = max(ends, default=0)
    return last if says.n_samples not in ends and last > (says.n_samples or 0) else None


def _header_at(data: bytes, at: int) -> bytes | None:
    """A frame's header up to its checksum, which must be right."""
    head = data[at : at + _LONGEST_HEADER]
    if len(head) < 6 or not _SYNC.match(head) or head[3] & 1:
        return None
    size, rate = head[2] >> 4, head[2] & 15
    n = 4 + _coded_length(head[4])
    n += {6: 1, 7: 2}.get(size, 0) + {12: 1, 13: 2, 14: 2}.get(rate, 0)
    if not size or rate == 15 or n >= len(head) or _crc8(head[:n]) != head[n]:
        return None
    return head[:n]


def _coded_length(byte: int) -> int:
    """Bytes of a number coded like a character of UTF-8."""
    return 1 if byte < 0x80 else max(2, 8 - (byte ^ 0xFF).bit_length())


def _rate_hz(header: bytes) -> int | None:
    """What the frame says; None where it leaves that to the header of the file."""
    code = header[2] & 15
    if code == 12:
        return 1000 * header[-1]
    if code in (13, 14):
        return int.from_bytes(header[-2:], "big") * (10 if code == 14 else 1)
    return _RATES_HZ.get(code)


def _end_of(header: bytes, block_size: int) -> int:
    """The sample behind the frame's last."""
    length = _coded_length(header[4])
    number = header[4] & (0x7F if length == 1 else 0xFF >> length + 1)
    for byte in header[5 : 4 + length]:
        number = number << 6 | byte & 0x3F
    code = header[2] >> 4
    extra = header[4 + length :]
    if code in (6, 7):
        size = int.from_bytes(extra[: code - 5], "big") + 1
    else:
        size = 192 if code == 1 else 576 << code - 2 if code < 6 else 256 << code - 8
    is_sample = header[1] & 1  # else it is the frame's number
    return number * (1 if is_sample else block_size) + size


def _crc8(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc << 1 & 0xFF ^ (0x07 if crc & 0x80 else 0)
    return crc
