"""Patching as people use it: the function, the command, pairs of a table, sets, time."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
from tests.support.fake_releases import RELEASES
from tests.support.tiny_model import tiny_model
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.cli.app import build
from residual_audio.data.registry import load_dataset
from residual_audio.errors import DatasetError, InputError
from residual_audio.patching.exchanges import Sounds, exchanges_of_pairs, exchanges_of_sounds
from residual_audio.patching.interchange import ExchangeWay, interchange
from residual_audio.patching.outcomes import Interchanged, effects_table
from residual_audio.patching.sets import SetSearch, halves, set_curve
from residual_audio.patching.study import PatchStudy, patch_study
from residual_audio.patching.targets import parse_targets

RATE = 8000


def sound(seed: int, n: int = RATE) -> np.ndarray:
    rng = np.random.default_rng(seed)
    t = np.arange(n) / RATE
    tone = np.sin(2 * np.pi * rng.uniform(200, 2000) * t) * (t > rng.uniform(0, 0.5))
    return (tone + 0.1 * rng.normal(size=n)).astype(np.float32) / 2


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def given(model):
    sounds = Sounds([sound(i) for i in range(6)], [sound(10 + i) for i in range(6)], RATE)
    return exchanges_of_sounds(model, sounds, [(f"a{i}", f"b{i}") for i in range(6)])


def test_the_function_gives_a_row_a_unit_with_intervals_and_q(model):
    clean, corrupt = [sound(i) for i in range(5)], [sound(10 + i) for i in range(5)]
    found = ra.patching(
        model, clean=clean, corrupt=corrupt, units="s*.*.h*", texts=("a dog", "a car"),
        sample_rate=RATE,
    )  # fmt: skip
    assert len(found) == sum(site.n_heads for site in model.encoder.sites)
    assert set(found["n"]) == {5}
    assert (found["effect_low"] <= found["effect"]).all()
    assert (found["effect"] <= found["effect_high"]).all()
    assert (found["effect_by_gap_low"] <= found["effect_by_gap"]).all()
    assert (found["effect_by_gap"] <= found["effect_by_gap_high"]).all()
    assert (found["q"] >= found["p"]).all()
    one = ra.patching(model, clean[0], corrupt[0], texts=("a dog", "a car"), sample_rate=RATE)
    assert np.isnan(one["p"]).all()
    assert any("only one group" in note for note in one.notes)


def test_without_texts_the_embedding_is_measured_and_the_stream_carries_all_of_it(model):
    found = ra.patching(
        model, sound(0), sound(1), units=["embedding", "s3"], sample_rate=RATE, path="total"
    )
    assert found["effect"][0] == pytest.approx(1, abs=1e-4)
    own = ra.patching(
        model, sound(0), sound(1), units="s3", sample_rate=RATE,
        measure=lambda joint, clean: joint[:, 0],
    )  # fmt: skip
    assert own["effect"][0] != pytest.approx(found["effect"][1], abs=1e-3)


def test_what_cannot_be_asked_is_said(model):
    with pytest.raises(InputError, match="2 clean clips for 1 corrupt"):
        ra.patching(model, [sound(0), sound(1)], [sound(2)], sample_rate=RATE)
    with pytest.raises(InputError, match="needs clean and corrupt"):
        ra.patching(model, sound(0))
    with pytest.raises(InputError, match="from < to"):
        ra.patching(model, sound(0), sound(1), sample_rate=RATE, between=(2.0, 1.0))
    with pytest.raises(InputError, match="the stream of a set"):
        parse_targets("x=s0.b0.h0+s1.b0.stream", model.encoder.sites)
    with pytest.raises(InputError, match="no stream"):
        parse_targets("s9.b0.stream", model.encoder.sites)
    with pytest.raises(DatasetError, match="no pairs and no two classes"):
        ra.patching(model, pairs=load_dataset("synthetic", n_clips=82).select(classes=["rain"]))


def test_effects_are_0_at_the_corrupt_clip_and_1_at_the_clean_one():
    targets = parse_targets(["s0.b0.h0", "s0.b0.h1", "s0.b1.h0"], tiny_model().encoder.sites)
    clean, corrupt = np.array([1.0, -0.5, 0.2, 0.3]), np.array([0.0, 0.5, 0.2, 0.1])
    half = (clean + corrupt) / 2
    found = Interchanged(
        targets, ("a", "b", "same", "c"), ("g", "h", "i", "j"), clean, corrupt,
        np.stack([corrupt, half, clean]), "exact", "total", "difference",
    )  # fmt: skip
    np.testing.assert_allclose(found.mean, [0, 0.5, 1])
    np.testing.assert_allclose(found.weighted, [0, 0.5, 1])
    assert found.left_out() == ["same"]
    table = effects_table(found, "t")
    assert set(table["n"]) == {3}
    assert "same" in " ".join(table.notes)


def test_stopped_work_goes_on_and_other_questions_start_anew(given, tmp_path, monkeypatch):
    units = ["s0.b0.h0", "s3"]
    first = interchange(given.part(range(6)), units, keep=tmp_path)
    assert len(list(tmp_path.rglob("*.npz"))) == 6
    from residual_audio.patching import interchange as module

    def never(*_):
        raise AssertionError("done already")

    monkeypatch.setitem(module.RUNS, ("exact", "total"), never)
    again = interchange(given, units, keep=tmp_path)
    np.testing.assert_array_equal(first.patched, again.patched)
    with pytest.raises(AssertionError, match="done already"):
        interchange(given, ["s0.b0.h1"], keep=tmp_path)


def test_sets_are_chosen_on_other_groups_than_they_are_judged_on(given):
    choosing, reporting = halves(given, 0)
    assert not set(choosing.groups) & set(reporting.groups)
    assert len(choosing) + len(reporting) == len(given)
    table = set_curve(given, "s3.*.h*", ExchangeWay(min_gap=0), SetSearch(3, 4))
    assert table["order"].tolist() == ["by own effect"] * 3 + ["greedy"] * 3 + ["random"] * 3
    # the set of the first two of an order is what is reported as its second row
    names = table["added"][3:5]
    two = interchange(reporting, ["+".join(names)], ExchangeWay(min_gap=0))
    assert table["effect_by_gap"][4] == pytest.approx(two.weighted[0], abs=1e-4)


def test_streams_are_in_no_set_and_what_cannot_be_done_is_said_first(given, monkeypatch):
    units = ["s3.b0.h0", "s3.b0.h1", "s3", "s3.b0.stream", "output"]
    table = set_curve(given, units, ExchangeWay(min_gap=0), SetSearch(3, 4))
    assert set(table["added"]) <= {"s3.b0.h0", "s3.b0.h1", "s3"}
    assert "s3.b0.stream, output" in " ".join(table.notes)
    from residual_audio.patching import study

    monkeypatch.setattr(study, "interchange", None)  # nothing is run
    for asked, said in (
        (PatchStudy(["stream"], sets=SetSearch(2)), "sets are made of heads"),
        (PatchStudy(ways=[ExchangeWay(), ExchangeWay()]), "asked for twice"),
        (PatchStudy(windows=2, time_units=["output"]), "no tokens"),
    ):
        with pytest.raises(InputError, match=said):
            patch_study(given, asked)
    with pytest.raises(InputError, match="two groups"):
        patch_study(given.part([0]), PatchStudy(["head"], sets=SetSearch(2)))


def test_a_study_states_how_attribution_ranks_and_what_windows_carry(given):
    ways = [ExchangeWay(), ExchangeWay("attribution"), ExchangeWay(path="direct")]
    found = patch_study(given, PatchStudy(["head"], ways, windows=2))
    tables = {table.name: table for table in found.tables}
    assert len(tables["patching_agreement"]) == 3
    assert -1 <= tables["patching_agreement"]["spearman"][0] <= 1
    time = tables["patching_time"]
    assert sorted(set(time["start_s"])) == [0.0, 0.5]
    assert len(found.scores()) == len(tables["patching_units_exact"])


def pairs_folder(folder, n: int = 3) -> None:
    rows = ["path,caption,pair,group"]
    for i in range(n):
        for side in "ab":
            name = f"{i}{side}.wav"
            soundfile.write(folder / name, sound(2 * i + (side == "b"), 5 * RATE), RATE)
            rows.append(f"{name},sound {i}{side},p{i},g{i}")
    (folder / "manifest.csv").write_text("\n".join(rows))


def test_pairs_of_a_table_go_both_ways(model, tmp_path):
    pairs_folder(tmp_path)
    (tmp_path / "2b.wav").write_bytes(b"RIFF")
    data = load_dataset("manifest", tmp_path)
    assert data.pairs[0].captions == ("sound 0a", "sound 0b")
    given = exchanges_of_pairs(model, data)
    assert [item.pair for item in given.items] == ["p0", "p0", "p1", "p1"]
    assert (given.items[0].clean, given.items[0].corrupt) == (
        given.items[1].corrupt,
        given.items[1].clean,
    )
    assert list(given.skipped) == ["2b.wav"]
    found = interchange(given, "output")
    np.testing.assert_allclose(found.gap[0], found.gap[1], atol=1e-6)  # the same by algebra
    (tmp_path / "manifest.csv").write_text("path,caption,pair\n0a.wav,x,p\n")
    with pytest.raises(DatasetError, match="pair 'p' has 1 rows"):
        load_dataset("manifest", tmp_path)


@pytest.mark.parametrize("name", ["compa-order", "compa-attribute"])
def test_the_released_benchmarks_can_be_patched(model, tmp_path, name):
    """Their own tables and folders; of a triplet, the two that are each other's exchange."""
    release = RELEASES[name](tmp_path)
    for i, path in enumerate(sorted(tmp_path.rglob("*.wav"))):
        soundfile.write(path, sound(i), RATE)
    data = load_dataset(name, tmp_path)
    found = interchange(exchanges_of_pairs(model, data), "head", ExchangeWay("attribution"))
    assert len(found.clean) == 2 * release.n_pairs
    assert np.isfinite(found.changes).all()
    assert abs(found.changes).max() > 0


def test_the_command_writes_tables_figures_and_a_result(tmp_path):
    pairs_folder(tmp_path)
    out = tmp_path / "run"
    call = ["patch", "-d", "manifest", "--root", str(tmp_path), "-o", str(out), "--min-gap", "1e-6"]
    call += ["--units", "s3.*.h*", "--method", "attribution", "--method", "exact", "--json"]
    done = CliRunner().invoke(build(), call)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["n_exchanges"] == 6
    (result,) = (out / "results").glob("*.json")
    assert len(json.loads(result.read_text())["scores"]) == 64
    assert (out / "figures" / "patching_heads.png").is_file()
    (tmp_path / "1a.wav").unlink()
    assert CliRunner().invoke(build(), [*call[:-5], "--method", "attribution"]).exit_code == 3


def test_timemap_prints_and_draws_what_sums_to_the_score(tmp_path):
    soundfile.write(tmp_path / "a.wav", sound(0, 5 * RATE), RATE)
    out = tmp_path / "maps"
    call = ["timemap", str(tmp_path / "a.wav"), "a dog", "rain", "--out", str(out), "--json"]
    done = CliRunner().invoke(build(), call)
    assert done.exit_code == 0, done.output
    for one in json.loads(done.stdout)["maps"]:
        assert sum(one["contribution"]) + one["rest"] == pytest.approx(one["score"], abs=1e-5)
    assert (out / "time_map_a-dog.png").is_file()
    assert (out / "time_map_rain.csv").is_file()
    nothing = CliRunner().invoke(build(), [*call[:2], " ", *call[4:]])
    assert nothing.exit_code == 1
    assert "the text is empty" in f"{nothing.output}{nothing.exception}"
