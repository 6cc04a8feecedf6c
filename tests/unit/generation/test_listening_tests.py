"""Ratings of listeners: read without names, screened, tested."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from residual_audio.errors import InputError
from residual_audio.generation.listening_tests import analyse_ratings
from residual_audio.generation.ratings import guess_scale, read_ratings
from residual_audio.results import result_to_dict

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
    kept, _ = analyse_ratings(ratings, screen=False)
    assert kept.details["n_listeners"] == 2
    result, used = analyse_ratings(ratings)
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
        analyse_ratings(read_ratings(path))


def test_real_webmushra_file(shared_dir: Path) -> None:
    path = shared_dir / "reference" / "webmushra_difftransfer.csv"
    ratings = read_ratings(path)
    assert ratings.values.shape == (17, 8, 4)
    assert ratings.systems == ("C1", "C2", "C3", "C4")
    assert ratings.scale == (1, 5)
    assert int(np.isfinite(ratings.values).sum()) == 408
    result, _ = analyse_ratings(ratings)
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
    result, _ = analyse_ratings(ratings)
    assert any("rated twice" in w for w in result.details["warnings"])
    with pytest.raises(InputError, match="no stimulus 'Z'"):
        analyse_ratings(ratings, reference="Z")
    with pytest.raises(InputError, match="no stimulus 'Q'"):
        analyse_ratings(ratings, anchors=["Q"])
