"""All measures of the same systems in one report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evaluation_fakes import FakeModel
from music_fakes import sounds, write_midi

from residual_audio.errors import InputError
from residual_audio.generation.music_report import run_study
from residual_audio.generation.music_study import read_music_study


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))


def _study(tmp_path: Path) -> Path:
    sounds(tmp_path / "ref", 12, 0)
    rng = np.random.default_rng(3)
    for i in range(3):
        write_midi(
            tmp_path / "ref-midi" / f"{i}.mid", [60 + int(p) for p in rng.integers(0, 12, 20)]
        )
    systems, rows = {}, []
    for k, name in enumerate("ABCDEF"):
        sounds(tmp_path / name, 10, 1 + k, shift=0.06 * k)
        write_midi(tmp_path / f"{name}-midi" / "0.mid", [60 + k, 62 + k, 64 + k, 60 + k])
        prompts = tmp_path / f"{name}.csv"
        prompts.write_text("file,prompt\n" + "".join(f"{i:03d}.wav,p{i}\n" for i in range(10)))
        systems[name] = {"audio": name, "midi": f"{name}-midi", "prompts": prompts.name}
        rows += [f"l{j},t,{name},{90 - 12 * k + j}" for j in range(3)]
    (tmp_path / "ratings.csv").write_text("listener,trial,system,score\n" + "\n".join(rows) + "\n")
    path = tmp_path / "study.json"
    path.write_text(
        json.dumps(
            {
                "reference": {"audio": "ref", "midi": "ref-midi"},
                "systems": systems,
                "ratings": "ratings.csv",
            }
        )
    )
    return path


def test_unified_report(tmp_path: Path) -> None:
    study = read_music_study(_study(tmp_path))
    assert study.needs_model
    found = run_study(study, FakeModel())
    assert found.systems == tuple("ABCDEF")
    for measure in ("fad", "fad_infinity", "mmd", "clap_score", "pitch_class_kl", "listeners"):
        assert set(found.measures[measure]) == set("ABCDEF"), measure
    agreement = {row.measure: row for row in found.correlations}
    # sounds drift away from the reference as ratings fall: a distance must agree with listeners
    assert agreement["mmd"].agreement > 0.8
    assert agreement["fad"].n_systems == 6
    assert len(found.results) == 6 * 3 + 1
    with pytest.raises(InputError, match="--model"):
        run_study(study, None)


def test_report_without_listeners_or_with_other_names(tmp_path: Path) -> None:
    path = _study(tmp_path)
    document = json.loads(path.read_text())
    document["systems"] = {"A": {"midi": "A-midi"}, "other": {"midi": "B-midi"}}
    path.write_text(json.dumps(document))
    found = run_study(read_music_study(path))
    assert any("no system named other" in w for w in found.warnings)
    assert any("2 systems" in w for w in found.warnings)
    del document["ratings"]
    path.write_text(json.dumps(document))
    quiet = run_study(read_music_study(path))
    assert quiet.correlations == ()
    del document["reference"]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="nothing to report"):
        run_study(read_music_study(path))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "needs an object 'systems'"),
        ({"systems": {}}, "names no system"),
        ({"systems": {"A": {"audio": "nowhere"}}}, "audio of system 'A' is not there"),
        ({"systems": {"A": {"sound": "x"}}}, "has 'sound'"),
        ({"systems": {"A": "x"}}, "must be an object"),
        ({"systems": {"A": {}}, "ratings": "none.csv"}, "ratings 'none.csv'"),
    ],
)
def test_study_files_that_do_not_fit(tmp_path: Path, document: dict, message: str) -> None:
    path = tmp_path / "study.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        read_music_study(path)
