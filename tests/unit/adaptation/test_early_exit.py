"""Leaving early: maps that have not seen their clips, sure answers first."""

import numpy as np
import pytest
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.adaptation.early_exit import exit_places, ridge_map, streams_after
from residual_audio.cli.app import build
from residual_audio.errors import InputError
from residual_audio.table import read_csv


def test_the_first_sure_answer_is_taken():
    unsure, sure = np.array([0.1, 0.0, 0.0]), np.array([9.0, 0.0, 0.0])
    scores = np.stack([[unsure, sure, unsure], [unsure, unsure, sure], [unsure] * 3])
    assert exit_places(scores, 0.9).tolist() == [2, 0, 1]
    assert exit_places(scores, 0.0).tolist() == [0, 0, 0]


def test_a_map_is_found_from_training_clips_alone():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    y = x @ rng.normal(size=(5, 3)) + 2.0
    train = np.arange(150)
    np.testing.assert_allclose(ridge_map(x, y, train, 1e-6)[150:], y[150:], atol=1e-3)
    other = y.copy()
    other[150:] = rng.normal(size=(50, 3))  # the clips it is judged on do not move it
    np.testing.assert_array_equal(ridge_map(x, y, train)[150:], ridge_map(x, other, train)[150:])


def test_by_the_command(tmp_path):
    sounds = ra.load_dataset("synthetic", n_clips=60, seed=3)
    run = ra.extract("nano", sounds, tmp_path / "run", capture="heads,blocks,stages,direct")
    after = streams_after(run.store, np.arange(60))
    np.testing.assert_allclose(after["s1.b1"], run.store.array("stages/s1"), atol=2e-3)
    args = ["reweight", "exit", str(tmp_path / "run"), "--folds", "2"]
    given = ["--data-option", "n_clips=60", "--data-option", "seed=3"]
    done = CliRunner().invoke(build(), [*args, *given])
    assert done.exit_code == 0, done.output
    blocks = read_csv(tmp_path / "run" / "tables" / "early_exit_blocks.csv")
    assert len(blocks) == 12
    assert blocks["loss"][-1] == 0
    assert blocks["time_saved"][-1] == 0
    assert (np.diff(blocks["time_saved"]) <= 0).all()
    sure = read_csv(tmp_path / "run" / "tables" / "early_exit_thresholds.csv")
    assert (np.diff(sure["left_early"]) <= 0).all()
    assert ((sure["time_saved"] >= 0) & (sure["time_saved"] <= 1)).all()


def test_a_store_without_streams_says_what_is_missing(tmp_path):
    run = ra.extract("nano", ra.load_dataset("synthetic", n_clips=8), tmp_path / "run")
    with pytest.raises(InputError, match="--capture blocks"):
        streams_after(run.store, np.arange(8))
