"""Clips in columns: what is read back is what was added, however it was cut into pieces."""

from __future__ import annotations

import hashlib
from pathlib import Path

from residual_audio.data.packed_clips import ClipRows, PackedClips
from residual_audio.types import Clip

FILE = Path("a.tar")


def _clip(i: int) -> Clip:
    return Clip(f"a/{i:05d}", FILE, f"class {i % 3}", ("two", "texts"), None, f"g{i % 7}", (i, 10))


def _packed(n: int) -> tuple[ClipRows, PackedClips]:
    rows = ClipRows()
    for i in range(n):
        rows.add(0, (i, 10), _clip(i))
    return rows, rows.clips([FILE])


def test_rows_come_back_in_order_over_the_ends_of_pieces() -> None:
    _, clips = _packed(1300)
    assert list(clips) == [_clip(i) for i in range(1300)]
    assert [clips[i] for i in (0, 511, 512, 1299, -1)] == [
        _clip(i) for i in (0, 511, 512, 1299, 1299)
    ]
    assert clips[510:514] == tuple(_clip(i) for i in range(510, 514))
    assert clips.repeated() is None


def test_an_id_in_two_pieces_is_found() -> None:
    rows, _ = _packed(600)
    rows.add(0, (1, 1), _clip(3))
    assert rows.clips([FILE]).repeated() == "a/00003"


def test_the_digest_is_over_lists_of_4096_rows() -> None:
    """Stores of earlier versions know their data set by it."""
    rows, _ = _packed(5000)
    listed = [
        {
            "id": clip.id, "file": 0, "first": i, "second": 10, "label": clip.label,
            "captions": list(clip.captions), "fold": None, "group": clip.group,
        }
        for i, clip in enumerate(map(_clip, range(5000)))
    ]  # fmt: skip
    text = repr(listed[:4096]) + repr(listed[4096:])
    assert rows.digest() == hashlib.sha256(text.encode()).hexdigest()
