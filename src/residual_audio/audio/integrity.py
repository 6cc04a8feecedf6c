"""Is a sound file all there? Decoders return what they find, so the container is asked first.

Each check reads headers only and returns what is wrong with the file, or None. What cannot be known
(a stream that never wrote its length) is not an error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO, Literal

Container = Literal[
    "riff", "aiff", "flac", "ogg", "mpeg", "au", "caf", "w64", "mp4", "foreign", "unknown"
]  # fmt: skip

# A program that writes to a pipe cannot go back to fill in the size: it leaves one of these.
_W64_RIFF = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
_AROUND = 4 * 1152
_PLACEHOLDER_SIZES = range(0x7FFF_0000, 0x8000_0001), range(0xFFFF_0000, 0x1_0000_0000)


def sniff(file: BinaryIO) -> Container:
    """The container, by its first bytes; the file's name plays no part."""
    file.seek(0)
    head = file.read(16)
    if head[:4] in (b"RIFF", b"RF64", b"RIFX") and head[8:12] == b"WAVE":
        return "riff"
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    if head[:4] == b"OggS":
        return "ogg"
    if head[:4] in (b".snd", b"dns."):
        return "au"
    if head[:4] == b"caff":
        return "caf"
    if head == _W64_RIFF:
        return "w64"
    if head[4:8] == b"ftyp":
        return "mp4"
    if head[:3] == b"ID3":
        file.seek(id3_length(head))
        return "flac" if file.read(4) == b"fLaC" else "mpeg"
    if head[:4] == b"fLaC":
        return "flac"
    if MpegHeader.parse(head) is not None:
        return "mpeg"
    return "foreign" if _is_foreign(head) else "unknown"


def _is_foreign(head: bytes) -> bool:
    """Matroska/WebM, ASF/WMA, ADTS AAC, AC-3, AMR, AVI: known, but not to libsndfile."""
    return (
        head[:4] in (b"\x1a\x45\xdf\xa3", b"\x30\x26\xb2\x75")
        or head[:5] == b"#!AMR"
        or head[:2] == b"\x0b\x77"
        or (head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xF6 == 0xF0)
        or (head[:4] == b"RIFF" and head[8:12] == b"AVI ")
    )


def check_chunks(file: BinaryIO, n_bytes: int) -> str | None:
    """RIFF, RF64 and AIFF: does the chunk of samples reach as far as its size says?"""
    file.seek(0)
    magic = file.read(12)
    big = magic[:4] in (b"FORM", b"RIFX")
    order = ">" if big else "<"
    samples = b"SSND" if magic[:4] == b"FORM" else b"data"
    long_size: int | None = None
    position = 12
    while position + 8 <= n_bytes:
        file.seek(position)
        name, size = struct.unpack(f"{order}4sI", file.read(8))
        start = position + 8
        if name == b"ds64":
            fields = file.read(16)
            long_size = struct.unpack("<QQ", fields)[1] if len(fields) == 16 else None
        if name == b"fmt " and file.read(8)[4:] == bytes(4):
            return "says its sample rate is 0 Hz: its header is damaged"
        if name == samples:
            if size == 0xFFFF_FFFF and long_size:
                size = long_size
            there = n_bytes - start
            streamed = any(size in sizes for sizes in _PLACEHOLDER_SIZES) or size == 0
            if streamed:
                return None
            if size <= there:
                file.seek(start + size + (size & 1))
                return _no_chunk(file.read(8), size)
            return f"is cut short: its header promises {size} bytes of samples, {there} are there"
        position = start + size + (size & 1)
    return "is cut short: it ends before its samples begin"


def _no_chunk(head: bytes, size: int) -> str | None:
    """Behind its samples a file ends, or a chunk has a name, or there is padding. Anything else is
    sound that a wrong size leaves out."""
    if len(head) < 8 or not any(head) or all(0x20 <= byte < 0x7F for byte in head[:3]):
        return None
    return f"is damaged: its header promises {size} bytes of samples, and more follow them"


def id3_length(head: bytes) -> int:
    """Bytes of an ID3v2 tag at the start, header and footer included."""
    if head[:3] != b"ID3" or len(head) < 10:
        return 0
    size = 0
    for byte in head[6:10]:
        size = size << 7 | byte & 0x7F
    return 10 + size + (10 if head[5] & 0x10 else 0)


@dataclass(frozen=True, slots=True)
class MpegHeader:
    """One MPEG audio frame header."""

    raw: bytes
    version: int
    """3 is MPEG-1, 2 MPEG-2, 0 MPEG-2.5."""
    layer: int
    rate_hz: int
    n_bytes: int
    n_samples: int
    mono: bool

    @classmethod
    def parse(cls, data: bytes, at: int = 0) -> MpegHeader | None:
        raw = data[at : at + 4]
        if len(raw) < 4 or raw[0] != 0xFF or raw[1] & 0xE0 != 0xE0:
            return None
        version, layer = raw[1] >> 3 & 3, 4 - (raw[1] >> 1 & 3)
        index, rate = raw[2] >> 4, raw[2] >> 2 & 3
        if version == 1 or layer == 4 or index in (0, 15) or rate == 3:
            return None
        rate_hz = (44_100, 48_000, 32_000)[rate] >> {3: 0, 2: 1, 0: 2}[version]
        bits_per_s = 1000 * _KBITS[(min(version, 3) == 3, layer)][index - 1]
        padding = raw[2] >> 1 & 1
        n_samples = 384 if layer == 1 else 576 if layer == 3 and version != 3 else 1152
        if layer == 1:
            n_bytes = (12 * bits_per_s // rate_hz + padding) * 4
        else:
            n_bytes = n_samples // 8 * bits_per_s // rate_hz + padding
        return cls(bytes(raw), version, layer, rate_hz, n_bytes, n_samples, raw[3] >> 6 == 3)

    @property
    def side_bytes(self) -> int:
        """Side information after the header, where a Xing header begins."""
        if self.version == 3:
            return 17 if self.mono else 32
        return 9 if self.mono else 17

    def continues(self, other: MpegHeader) -> bool:
        return (self.version, self.layer, self.rate_hz) == (
            other.version,
            other.layer,
            other.rate_hz,
        )


_KBITS: dict[tuple[bool, int], tuple[int, ...]] = {
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


@dataclass(frozen=True, slots=True)
class MpegScan:
    """What walking over the frames of an MPEG file found."""

    first: MpegHeader
    start: int
    n_frames: int
    """Frames with sound (an information frame is not counted)."""
    n_bytes: int
    has_length: bool
    """The file says how long it is (Xing, Info or VBRI); else a decoder can only guess."""
    problem: str | None

    @property
    def n_least(self) -> int:
        """Samples that decoding gives at least: encoders put some silence around the sound, which
        decoders take off again."""
        return self.n_frames * self.first.n_samples - _AROUND


def scan_mpeg(file: BinaryIO) -> MpegScan | None:
    """Walk over all frames; None when no two frames follow each other."""
    # read, not mapped: a file that shrinks meanwhile would end the program
    file.seek(0)
    data = file.read()
    start = id3_length(data[:10])
    first = MpegHeader.parse(data, start)
    # An information frame speaks for itself; any other must be followed by a second frame.
    if first is None or _promised_frames(data, start, first) is None:
        found = _next_frame(data, start, None)
        if found is None:
            return None
        start, first = found
    at, n_frames, n_skipped, problem = start, 0, 0, None
    while True:
        header = MpegHeader.parse(data, at)
        if header is None or not header.continues(first):
            if _is_trailer(data, at):
                break
            found = _next_frame(data, at, first)
            if found is None:
                break
            n_skipped += found[0] - at
            at, header = found
        if at + header.n_bytes > len(data):
            missing = at + header.n_bytes - len(data)
            problem = f"is cut short: its last MPEG frame lacks {missing} bytes"
            break
        n_frames += 1
        at += header.n_bytes
    promised = _promised_frames(data, start, first)
    if promised is not None:
        n_frames -= 1
        # Whether the information frame counts itself differs between encoders.
        if n_frames < promised - 1:
            problem = (
                f"is cut short: its header promises {promised} MPEG frames, {n_frames} are there"
            )
        elif n_frames < promised and n_skipped:
            problem = (
                f"is damaged: its header promises {promised} MPEG frames, {n_frames} are there, "
                f"with {n_skipped} bytes between them that are none"
            )
    return MpegScan(first, start, n_frames, len(data), promised is not None, problem)


def information_frame(scan: MpegScan) -> bytes:
    """A Xing frame with the true length, for files that have none."""
    raw = bytearray(scan.first.raw)
    raw[1] |= 1  # no checksum
    raw[2] = raw[2] & 0x0D | 9 << 4  # a bit rate that leaves room, no padding
    header = MpegHeader.parse(bytes(raw))
    assert header is not None
    body = bytes(raw) + bytes(header.side_bytes) + b"Xing"
    n_bytes = scan.n_bytes - scan.start + header.n_bytes
    body += struct.pack(">III", 3, scan.n_frames, min(n_bytes, 0xFFFF_FFFF))
    return body.ljust(header.n_bytes, b"\0")


def _next_frame(data: bytes, at: int, like: MpegHeader | None) -> tuple[int, MpegHeader] | None:
    """The next frame that is followed by another one, or that ends the file."""
    while (at := data.find(b"\xff", at)) >= 0:
        header = MpegHeader.parse(data, at)
        if header is not None and (like is None or header.continues(like)):
            end = at + header.n_bytes
            after = MpegHeader.parse(data, end)
            if (after is not None and after.continues(header)) or end == len(data):
                return at, header
        at += 1
    return None


def _is_trailer(data: bytes, at: int) -> bool:
    return data[at : at + 3] in (b"TAG", b"ID3", b"LYR", b"APE", b"") or not any(data[at : at + 64])


def _promised_frames(data: bytes, start: int, first: MpegHeader) -> int | None:
    """Frames an information frame promises; 0 when it is there but does not say."""
    xing = start + 4 + first.side_bytes
    if data[xing : xing + 4] in (b"Xing", b"Info"):
        flags, count = struct.unpack(">II", data[xing + 4 : xing + 12].ljust(8, b"\0"))
        return count if flags & 1 else 0
    vbri = start + 4 + 32
    if data[vbri : vbri + 4] == b"VBRI":
        return int.from_bytes(data[vbri + 14 : vbri + 18], "big")
    return None
