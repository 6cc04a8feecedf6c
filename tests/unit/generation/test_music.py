"""FAD on folders, CLAP score, MIDI folders, listening tests, and all of them in one report."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from evaluation_fakes import D, FakeModel

from residual_audio.errors import AudioError, InputError, MissingExtraError
from residual_audio.generation import clap_score, fad, mushra, music_report, symbolic
from residual_audio.generation.ratings import guess_scale, read_ratings
from residual_audio.metrics import frechet
from residual_audio.report import figures_evaluation as plots
from residual_audio.results import result_to_dict

pretty_midi = pytest.importorskip("pretty_midi")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))


def _sounds(folder: Path, n: int, seed: int, windows: int = 2, shift: float = 0.0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(n):
        wave = 0.1 * rng.normal(size=windows * D) + shift
        soundfile.write(folder / f"{i:03d}.wav", wave.astype(np.float32), 1000, subtype="FLOAT")
    return folder


# --- FAD


def test_fad_of_folders(tmp_path: Path) -> None:
    model = FakeModel()
    left = fad.read_side(_sounds(tmp_path / "ref", 30, 0), model)
    same = fad.read_side(_sounds(tmp_path / "same", 30, 1), model)
    far = fad.read_side(_sounds(tmp_path / "far", 30, 2, shift=0.1), model)
    assert left.gaussian.n == 60
    near = fad.compare_sides(left, same, model)
    away = fad.compare_sides(left, far, model).result
    assert [s.name for s in near.result.scores] == ["fad", "fad_infinity", "mmd"]
    expected = frechet.frechet_distance(left.gaussian, same.gaussian)
    assert near.result["fad"].value == expected
    assert near.result["fad_infinity"].value < expected / 2
    assert near.result["fad_infinity"].low < 0.05
    assert near.result["mmd"].low < 0 < near.result["mmd"].high
    assert away["fad"].value > 3 * near.result["fad"].value
    assert away["mmd"].low > 0
    assert len(near.result.per_item["file"]) == 30  # type: ignore[index]
    assert near.result.per_item["windows"] == [2] * 30  # type: ignore[index]
    assert near.extrapolated is not None
    plots.save(plots.extrapolation(near.extrapolated), tmp_path / "line.png")
    itself = fad.compare_sides(left, left, model).result
    assert itself["fad"].value == pytest.approx(0, abs=1e-10)


def test_fad_warns_when_there_is_too_little(tmp_path: Path) -> None:
    model = FakeModel()
    left = fad.read_side(_sounds(tmp_path / "ref", 3, 0), model)
    right = fad.read_side(_sounds(tmp_path / "gen", 5, 1), model)
    result = fad.compare_sides(left, right, model).result
    said = " ".join(result.details["warnings"])
    assert "below 2d = 32" in said
    assert "at least four files" in said
    assert [s.name for s in result.scores] == ["fad", "mmd"]
    with pytest.raises(InputError, match="1 window"):
        fad.read_side(_sounds(tmp_path / "one", 1, 0, windows=1), model)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no audio file"):
        fad.read_side(tmp_path / "empty", model)


def test_constant_embeddings_have_a_distance_and_a_reason(tmp_path: Path) -> None:
    for folder, level in (("ref", 0.1), ("gen", 0.2)):
        (tmp_path / folder).mkdir()
        for i in range(5):
            wave = np.full(D, level, dtype=np.float32)
            wave[0] = -level if folder == "gen" else level
            soundfile.write(tmp_path / folder / f"{i}.wav", wave, 1000, subtype="FLOAT")
    model = FakeModel()
    sides = [fad.read_side(tmp_path / folder, model) for folder in ("ref", "gen")]
    result = fad.compare_sides(*sides, model).result
    # two points: the squared distance between them
    assert result["fad"].value == pytest.approx(4 / D, rel=1e-4)
    assert result["fad_infinity"].value == pytest.approx(4 / D, rel=1e-4)
    assert any("all the same" in warning for warning in result.details["warnings"])


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    folder = _sounds(tmp_path / "gen", 4, 0)
    (folder / "broken.wav").write_text("not audio")
    side = fad.read_side(folder, FakeModel())
    assert list(side.skipped) == ["broken.wav"]
    assert side.gaussian.n == 8


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_statistics_in_and_out(tmp_path: Path, suffix: str) -> None:
    model = FakeModel()
    left = fad.read_side(_sounds(tmp_path / "ref", 20, 0), model)
    right = fad.read_side(_sounds(tmp_path / "gen", 20, 1), model)
    path = tmp_path / f"stats{suffix}"
    fad.write_statistics(left, model, path)
    back = fad.read_side(path, model)
    assert back.gaussian.n == 40
    result = fad.compare_sides(back, right, model).result
    assert result["fad"].value == pytest.approx(
        fad.compare_sides(left, right, model).result["fad"].value, rel=1e-9
    )
    assert "of the reference remains" in " ".join(result.details["warnings"])
    assert [s.name for s in result.scores] == ["fad", "fad_infinity"]
    with pytest.raises(InputError, match="made with model 'fake', not with 'other'"):
        fad.read_side(path, FakeModel("other"))
    with pytest.raises(InputError, match="not statistics"):
        fad.compare_sides(left, back, model)


def test_foreign_and_broken_statistics(tmp_path: Path) -> None:
    plain = tmp_path / "plain.npz"
    np.savez(plain, mu=np.zeros(D), sigma=np.eye(D))
    side = fad.read_statistics(plain, FakeModel())
    assert side.gaussian.n == 0
    np.savez(tmp_path / "odd.npz", a=np.zeros(2))
    with pytest.raises(InputError, match="no mu and sigma"):
        fad.read_statistics(tmp_path / "odd.npz")
    (tmp_path / "bad.npz").write_text("x")
    with pytest.raises(InputError, match="cannot be read as statistics"):
        fad.read_statistics(tmp_path / "bad.npz")
    right = fad.read_side(_sounds(tmp_path / "gen", 4, 1), FakeModel())
    with pytest.raises(InputError, match=r"written as \.npz"):
        fad.write_statistics(right, FakeModel(), tmp_path / "x.txt")


# --- CLAP score


def _prompted(tmp_path: Path, n: int = 6) -> tuple[Path, FakeModel]:
    folder = tmp_path / "gen"
    folder.mkdir()
    rng = np.random.default_rng(0)
    texts = {}
    for i in range(n):
        wave = rng.normal(size=D).astype(np.float32) * 0.1
        soundfile.write(folder / f"{i}.wav", wave, 1000, subtype="FLOAT")
        texts[f"prompt {i}"] = wave
    return folder, FakeModel(texts=texts)


def test_clap_score_and_its_chance(tmp_path: Path) -> None:
    folder, model = _prompted(tmp_path)
    table = tmp_path / "prompts.csv"
    table.write_text("file,prompt\n" + "".join(f"{i}.wav,prompt {i}\n" for i in range(6)))
    result = clap_score.clap_score(model, clap_score.read_prompts(table, folder), root=folder)
    assert result["clap_score"].value == pytest.approx(1, abs=1e-5)
    assert result["clap_score"].chance is not None
    assert result["clap_score"].chance < 0.6
    assert result["pair_auc"].value == 1.0
    assert result["a2t_r1"].value == 1.0
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({f"{i}": f"prompt {(i + 1) % 6}" for i in range(6)}))
    low = clap_score.clap_score(model, clap_score.read_prompts(wrong, folder), root=folder)
    assert low["clap_score"].value < 0.6


def test_prompts_beside_the_files_and_bad_ones(tmp_path: Path) -> None:
    folder, _ = _prompted(tmp_path, 2)
    for i in range(2):
        (folder / f"{i}.txt").write_text(f"prompt {i}\n")
    assert [p for _, p in clap_score.read_prompts(folder, folder)] == ["prompt 0", "prompt 1"]
    lines = tmp_path / "p.jsonl"
    lines.write_text('{"id": "0", "caption": "x"}\n\n{"id": "1", "caption": "y"}\n')
    assert len(clap_score.read_prompts(lines, folder)) == 2
    lines.write_text('{"id": "0"}\n')
    with pytest.raises(InputError, match="lacks a file"):
        clap_score.read_prompts(lines, folder)
    lines.write_text('{"id": "9", "caption": "x"}\n')
    with pytest.raises(InputError, match=r"1 of 1 prompts .* '9'"):
        clap_score.read_prompts(lines, folder)
    lines.write_text("{")
    with pytest.raises(InputError, match="cannot be read as prompts"):
        clap_score.read_prompts(lines, folder)
    with pytest.raises(InputError, match="no file"):
        clap_score.read_prompts(tmp_path / "absent.csv", folder)


def test_clap_score_of_one_prompt_and_of_nothing(tmp_path: Path) -> None:
    folder, model = _prompted(tmp_path, 1)
    (item,) = [(folder / "0.wav", "prompt 0")]
    single = clap_score.clap_score(model, [item], root=folder)
    assert [s.name for s in single.scores] == ["clap_score"]
    assert single["clap_score"].chance is None
    (folder / "0.wav").write_text("")
    with pytest.raises((AudioError, InputError), match="could be read"):
        clap_score.clap_score(model, [item], root=folder)


# --- MIDI


def _midi(path: Path, pitches: list[int], step_s: float = 0.5, tempo: float = 120.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    midi = pretty_midi.PrettyMIDI(initial_tempo=tempo, resolution=480)
    piano, drums = pretty_midi.Instrument(0), pretty_midi.Instrument(0, is_drum=True)
    for i, pitch in enumerate(pitches):
        piano.notes.append(pretty_midi.Note(80, pitch, i * step_s, (i + 1) * step_s))
        drums.notes.append(pretty_midi.Note(80, 36, i * step_s, (i + 0.5) * step_s))
    midi.instruments += [piano, drums]
    midi.write(str(path))
    return path


def test_midi_is_read_in_beats_without_drums(tmp_path: Path) -> None:
    notes = symbolic.read_midi(_midi(tmp_path / "a.mid", [60, 64, 67]))
    np.testing.assert_allclose(notes, [[0, 1, 60], [1, 1, 64], [2, 1, 67]], atol=0.01)
    # the same music at half the tempo is the same in beats
    slow = symbolic.read_midi(_midi(tmp_path / "b.mid", [60, 64, 67], 1.0, 60.0))
    np.testing.assert_allclose(slow, notes, atol=0.01)


def test_missing_reader_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pretty_midi", None)
    with pytest.raises(MissingExtraError, match=r"residual-audio\[music\]"):
        symbolic.read_midi(tmp_path / "a.mid")


def test_folders_side_by_side(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    major = [0, 2, 4, 5, 7, 9, 11]
    for i in range(8):
        _midi(tmp_path / "ref" / f"{i}.mid", [60 + int(p) for p in rng.choice(major, 40)])
        _midi(tmp_path / "same" / f"{i}.mid", [60 + int(p) for p in rng.choice(major, 40)])
        _midi(tmp_path / "odd" / f"{i}.mid", [60 + int(p) for p in rng.integers(0, 12, 40)])
    _midi(tmp_path / "odd" / "empty.mid", [])
    (tmp_path / "odd" / "broken.mid").write_bytes(b"MThd nonsense")
    reference = symbolic.read_folder(tmp_path / "ref")
    same = symbolic.compare_pieces(reference, symbolic.read_folder(tmp_path / "same"))
    odd = symbolic.compare_pieces(reference, symbolic.read_folder(tmp_path / "odd"))
    assert set(odd.details["skipped"]) == {"empty.mid", "broken.mid"}
    assert odd.details["skipped"]["empty.mid"] == "no pitched note"
    assert same["pitch_class_kl"].value < 0.2 < odd["pitch_class_kl"].value
    assert same["pitch_class_kl"].low <= same["pitch_class_kl"].value
    assert odd["scale_consistency_difference"].high < 0
    assert same["scale_consistency_difference"].value == pytest.approx(0, abs=1e-9)
    assert odd.details["settings"]["smoothing"] == 1e-3
    assert len(odd.details["descriptors"]) == 12
    again = symbolic.compare_pieces(reference, symbolic.read_folder(tmp_path / "odd"))
    assert again.scores == odd.scores
    json.dumps(result_to_dict(odd), allow_nan=False)


def test_midi_folders_with_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        symbolic.read_folder(tmp_path / "absent")
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no MIDI file"):
        symbolic.read_folder(tmp_path / "none")
    _midi(tmp_path / "silent" / "a.mid", [])
    with pytest.raises(InputError, match="no pitched note"):
        symbolic.read_folder(tmp_path / "silent")
    one = symbolic.read_folder(_midi(tmp_path / "one" / "a.mid", [60]).parent)
    single = symbolic.compare_pieces(one, one)
    assert single["pitch_class_kl"].value == pytest.approx(0)
    assert math.isnan(single["pitch_class_kl"].low)


# --- listening tests

WEBMUSHRA = """test_id,email,age,session_uuid,trial_id,rating_stimulus,rating_score,rating_comment

test,ann@example.org,3177,u-1,t1,reference,98,lovely
test,ann@example.org,3177,u-1,t1,A,70,
test,ann@example.org,3177,u-1,t1,anchor35,20,
test,ann@example.org,3177,u-1,t2,reference,95,
test,ann@example.org,3177,u-1,t2,A,60,"too bright, harsh"

test,bob@example.org,4499,u-2,t1,reference,50,
test,bob@example.org,4499,u-2,t1,A,90,
test,bob@example.org,4499,u-2,t1,anchor35,40,
test,bob@example.org,4499,u-2,t2,reference,55,
test,bob@example.org,4499,u-2,t2,A,85,
"""


def test_webmushra_with_personal_columns(tmp_path: Path) -> None:
    path = tmp_path / "mushra.csv"
    path.write_text(WEBMUSHRA)
    ratings = read_ratings(path)
    assert ratings.values.shape == (2, 2, 3)
    assert ratings.scale == (0, 100)
    kept, _ = mushra.analyse_ratings(ratings, screen=False)
    assert kept.details["n_listeners"] == 2
    result, used = mushra.analyse_ratings(ratings)
    assert result.details["reference"] == "reference"
    assert result.details["anchors"] == ["anchor35"]
    assert result.details["screening"]["flagged"] == ["L2"]
    assert result.details["screening"]["applied"]
    assert used.listeners == ("L1",)
    assert result["mean/A"].value == 65
    text = json.dumps([result_to_dict(result), result_to_dict(kept)])
    for secret in ("ann@", "bob@", "u-1", "u-2", "lovely", "3177", "4499", "bright"):
        assert secret not in text


def test_screening_everybody_out_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("listener,trial,system,score\na,1,reference,10\na,1,X,90\n")
    with pytest.raises(InputError, match="all 1 listeners"):
        mushra.analyse_ratings(read_ratings(path))


def test_real_webmushra_file(shared_dir: Path) -> None:
    path = shared_dir / "reference" / "webmushra_difftransfer.csv"
    ratings = read_ratings(path)
    assert ratings.values.shape == (17, 8, 4)
    assert ratings.systems == ("C1", "C2", "C3", "C4")
    assert ratings.scale == (1, 5)
    assert int(np.isfinite(ratings.values).sum()) == 408
    result, _ = mushra.analyse_ratings(ratings)
    # against a plain reading of the file
    rows = [r for r in csv.DictReader(path.open()) if r["rating_score"]]
    for system in ratings.systems:
        scores = [float(r["rating_score"]) for r in rows if r["rating_stimulus"] == system]
        assert result[f"mean/{system}"].value == pytest.approx(np.mean(scores))
        assert result[f"median/{system}"].value == pytest.approx(np.median(scores))
        assert result[f"mean/{system}"].n == len(scores)
    assert result.details["friedman"]["n_trials"] == 4
    assert result.details["friedman"]["p"] < 1e-6
    assert not result.details["screening"]["possible"]
    text = json.dumps(result_to_dict(result))
    assert not any(r["session_uuid"] in text for r in rows)
    by_pair = {(p["a"], p["b"]): p for p in result.details["pairwise"]}
    assert by_pair["C1", "C2"]["p_holm"] < 0.01
    assert by_pair["C1", "C3"]["p_holm"] > 0.5


def test_wide_tables(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("participant;age;item;A;B\np1;30;x;80;60\np1;30;y;;50\np2;41;x;70;65\n")
    ratings = read_ratings(path)
    assert ratings.systems == ("A", "B")
    assert ratings.values.shape == (2, 2, 2)
    assert np.isnan(ratings.values[0, 1, 0])
    nameless = tmp_path / "nameless.csv"
    nameless.write_text("A,B,C\n1,2,3\n4,5,5\n")
    assert read_ratings(nameless).values.shape == (2, 1, 3)


def test_scales() -> None:
    assert guess_scale(np.array([1.0, 5.0])) == (1, 5)
    assert guess_scale(np.array([1.0, 7.0])) == (1, 10)
    assert guess_scale(np.array([0.0, 3.0])) == (0, 10)
    assert guess_scale(np.array([3.5, 80.0])) == (0, 100)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no row"),
        ("listener,system,score\n", "no row"),
        ("listener,system,score\na,X,loud\n", "line 2 .* 'loud' is not a number"),
        ("listener,system,score\na,X,nan\n", "not a number"),
        ("listener,system,score\na,X,140\n", "rating 140 .* outside"),
        ("listener,system,score\na,,14\n", "without listener or stimulus"),
        ("system,score\nX,14\n", "no column for the listener"),
        ("listener,system,score\na,X,\n", "no rating"),
        ("a,b\nx,y\n", "neither a long table"),
    ],
)
def test_ratings_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_ratings(path)


def test_out_of_the_stated_scale_and_repeated_ratings(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("listener,trial,system,score\na,1,X,6\na,1,X,8\na,1,Y,3\nb,1,X,5\nb,1,Y,4\n")
    with pytest.raises(InputError, match=r"rating 6 .* 1 to 5"):
        read_ratings(path, (1, 5))
    ratings = read_ratings(path, (0, 10))
    assert ratings.n_repeated == 1
    assert ratings.values[0, 0, 0] == 7
    result, _ = mushra.analyse_ratings(ratings)
    assert any("rated twice" in w for w in result.details["warnings"])
    with pytest.raises(InputError, match="no stimulus 'Z'"):
        mushra.analyse_ratings(ratings, reference="Z")
    with pytest.raises(InputError, match="no stimulus 'Q'"):
        mushra.analyse_ratings(ratings, anchors=["Q"])


# --- all together


def _study(tmp_path: Path) -> Path:
    _sounds(tmp_path / "ref", 12, 0)
    rng = np.random.default_rng(3)
    for i in range(3):
        _midi(tmp_path / "ref-midi" / f"{i}.mid", [60 + int(p) for p in rng.integers(0, 12, 20)])
    systems, rows = {}, []
    for k, name in enumerate("ABCDEF"):
        _sounds(tmp_path / name, 10, 1 + k, shift=0.06 * k)
        _midi(tmp_path / f"{name}-midi" / "0.mid", [60 + k, 62 + k, 64 + k, 60 + k])
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
    study = music_report.read_study_file(_study(tmp_path))
    assert study.needs_model
    found = music_report.run_study(study, FakeModel())
    assert found.systems == tuple("ABCDEF")
    for measure in ("fad", "fad_infinity", "mmd", "clap_score", "pitch_class_kl", "listeners"):
        assert set(found.measures[measure]) == set("ABCDEF"), measure
    agreement = {row["measure"]: row for row in found.correlations}
    # sounds drift away from the reference as ratings fall: a distance must agree with listeners
    assert agreement["mmd"]["agreement"] > 0.8
    assert agreement["fad"]["n_systems"] == 6
    assert len(found.results) == 6 * 3 + 1
    with pytest.raises(InputError, match="--model"):
        music_report.run_study(study, None)


def test_report_without_listeners_or_with_other_names(tmp_path: Path) -> None:
    path = _study(tmp_path)
    document = json.loads(path.read_text())
    document["systems"] = {"A": {"midi": "A-midi"}, "other": {"midi": "B-midi"}}
    path.write_text(json.dumps(document))
    found = music_report.run_study(music_report.read_study_file(path))
    assert any("no system named other" in w for w in found.warnings)
    assert any("2 systems" in w for w in found.warnings)
    del document["ratings"]
    path.write_text(json.dumps(document))
    quiet = music_report.run_study(music_report.read_study_file(path))
    assert quiet.correlations == ()
    del document["reference"]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="nothing to report"):
        music_report.run_study(music_report.read_study_file(path))


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
        music_report.read_study_file(path)
