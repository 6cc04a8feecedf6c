"""What people see when they type a name: a line or a table, never arrays and addresses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from tiny_model import tiny_model

import residual_audio as ra


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    model = tiny_model()
    whole = ra.load_dataset("synthetic", classes="rain,wind", n_clips=12)
    run = ra.extract(model, whole, tmp_path_factory.mktemp("run") / "mine")
    noise = np.random.default_rng(0).normal(size=8000)
    cache = model.run([noise], keep=["s0.b0.h0", "contributions"], sample_rate=8000)
    spectrum = ra.Spectrum(np.zeros(4), np.eye(4), np.ones(4), 12)
    gains = ra.Gains({"s3.b0.h0": np.full(4, 0.5)}, {"s3.b0.h0": spectrum})
    return {
        "model": model, "data": whole, "run": run, "store": run.store, "cache": cache,
        "contributions": cache.contributions(), "spectrum": spectrum, "gains": gains,
        "patch": ra.patch(cache), "mean": ra.mean(cache), "given": ra.mean(np.zeros(4)),
    }  # fmt: skip


def test_everything_shows_itself_in_a_line(things: dict[str, object]) -> None:
    for name, thing in things.items():
        shown = repr(thing)
        assert len(shown) < 300, name
        assert "array(" not in shown, name
        assert " at 0x" not in shown, name


def test_what_the_lines_say(things: dict[str, object]) -> None:
    shown = {name: repr(thing) for name, thing in things.items()}
    assert shown["data"] == "Dataset synthetic: 12 clips, 2 classes, 5 folds"
    assert shown["gains"] == "Gains of 1 units, network path: 4 numbers, from 0.5 to 0.5"
    assert shown["spectrum"] == "Spectrum of 4 components in 4 dimensions, from 12 vectors"
    assert shown["patch"] == "Patch(s0.b0.h0 of 1 clip)"
    assert shown["given"] == "Mean(of 4 dimensions)"
    assert "12 clips of synthetic through tiny" in shown["store"]
    assert "to the latent of 1 clip" in shown["contributions"]


def test_a_folder_says_where_it_lies_and_what_is_left_out(tmp_path: Path) -> None:
    whole = ra.load_dataset("synthetic", classes="rain,wind", n_clips=12)
    assert repr(whole.select(limit=4)).startswith("Dataset synthetic: 4 clips (of 12)")


def test_a_ranking_shows_what_it_is_by() -> None:
    columns = {"head_id": ["a", "b", "c"]} | {f"x{i}": [1.0, 2.0, 3.0] for i in range(12)}
    columns |= {"worth": [0.1, 0.3, float("nan")], "worth_low": [0.0, 0.2, 0.0]}
    best = ra.Table("heads", columns).top("worth", 2)
    header = repr(best).splitlines()[1].split()
    assert header[:4] == ["head_id", "worth", "worth_low", "x0"]
    assert "<th>worth</th>" in best._repr_html_()
    nothing = ra.Table("heads", {"head_id": ["a"], "worth": [float("nan")]}).top("worth")
    assert "no row has a value of worth" in repr(nothing)


def test_a_result_says_what_to_know_before_believing_it() -> None:
    details = {
        "heard_before": {"note": "trained on all 3 of these clips"},
        "skipped": {"a.wav": "no audio"},
        "remarks": {f"{i}.wav": "silent" for i in range(7)},
        "reasons": {"twonn": "too few clips"},
    }
    score = ra.Score("top1", 2 / 3, 0.1, 0.9, 3, 0.5)
    result = ra.Result("zero-shot", "nano", "esc50", "all", (score,), details=details)
    for shown in (repr(result), result._repr_html_()):
        assert "trained on all 3 of these clips" in shown
        assert "skipped a.wav: no audio" in shown
        assert "odd 4.wav: silent" in shown
        assert "odd 2 more" in shown
        assert "no twonn: too few clips" in shown
        assert "0.6667" in shown
        assert "0.66666" not in shown


def test_gains_of_one_folder_are_not_said_to_have_seen_another(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("one", "other"):
        for label in ("low", "high"):
            (tmp_path / name / label).mkdir(parents=True)
            for i in range(2):
                wave = rng.normal(0, 0.1, 8000)
                soundfile.write(tmp_path / name / label / f"{i}.wav", wave, 8000)
    one, other = (ra.load_dataset("folder", tmp_path / name) for name in ("one", "other"))
    spectrum = ra.Spectrum(np.zeros(8), np.eye(8), np.ones(8), 12)
    about = {"dataset": {"name": "folder", "fingerprint": one.fingerprint(), "n_clips": 4}}
    gains = ra.Gains({"s3.b0.h0": np.ones(8)}, {"s3.b0.h0": spectrum}, fitted_on=about)
    model = tiny_model()
    with pytest.warns(match="fitted on all clips of folder"):
        ra.evaluate(model, one, gains=gains, cache=False)
    with pytest.warns(match=r"fitted on other files \(4 clips\)"):
        ra.evaluate(model, other, gains=gains, cache=False)
