"""MIDI files as notes, and two folders of pieces side by side."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from music_fakes import write_midi

from residual_audio.errors import InputError, MissingExtraError
from residual_audio.generation.midi import read_folder, read_midi
from residual_audio.generation.pieces import compare_pieces
from residual_audio.results import result_to_dict


def test_midi_is_read_in_beats_without_drums(tmp_path: Path) -> None:
    notes = read_midi(write_midi(tmp_path / "a.mid", [60, 64, 67]))
    np.testing.assert_allclose(notes, [[0, 1, 60], [1, 1, 64], [2, 1, 67]], atol=0.01)
    # the same music at half the tempo is the same in beats
    slow = read_midi(write_midi(tmp_path / "b.mid", [60, 64, 67], 1.0, 60.0))
    np.testing.assert_allclose(slow, notes, atol=0.01)


def test_missing_reader_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "symusic", None)
    with pytest.raises(MissingExtraError, match=r"residual-audio\[music\]"):
        read_midi(tmp_path / "a.mid")


def test_folders_side_by_side(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    major = [0, 2, 4, 5, 7, 9, 11]
    for i in range(8):
        write_midi(tmp_path / "ref" / f"{i}.mid", [60 + int(p) for p in rng.choice(major, 40)])
        write_midi(tmp_path / "same" / f"{i}.mid", [60 + int(p) for p in rng.choice(major, 40)])
        write_midi(tmp_path / "odd" / f"{i}.mid", [60 + int(p) for p in rng.integers(0, 12, 40)])
    write_midi(tmp_path / "odd" / "empty.mid", [])
    (tmp_path / "odd" / "broken.mid").write_bytes(b"MThd nonsense")
    reference = read_folder(tmp_path / "ref")
    same = compare_pieces(reference, read_folder(tmp_path / "same"))
    odd = compare_pieces(reference, read_folder(tmp_path / "odd"))
    assert set(odd.details["skipped"]) == {"empty.mid", "broken.mid"}
    assert odd.details["skipped"]["empty.mid"] == "no pitched note"
    assert same["pitch_class_kl"].value < 0.2 < odd["pitch_class_kl"].value
    assert same["pitch_class_kl"].low <= same["pitch_class_kl"].value
    assert odd["scale_consistency_difference"].high < 0
    assert same["scale_consistency_difference"].value == pytest.approx(0, abs=1e-9)
    assert odd.details["settings"]["smoothing"] == 1e-3
    assert len(odd.details["descriptors"]) == 12
    again = compare_pieces(reference, read_folder(tmp_path / "odd"))
    assert again.scores == odd.scores
    json.dumps(result_to_dict(odd), allow_nan=False)


def test_midi_folders_with_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        read_folder(tmp_path / "absent")
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no MIDI file"):
        read_folder(tmp_path / "none")
    write_midi(tmp_path / "silent" / "a.mid", [])
    with pytest.raises(InputError, match="no pitched note"):
        read_folder(tmp_path / "silent")
    one = read_folder(write_midi(tmp_path / "one" / "a.mid", [60]).parent)
    single = compare_pieces(one, one)
    assert single["pitch_class_kl"].value == pytest.approx(0)
    assert math.isnan(single["pitch_class_kl"].low)
