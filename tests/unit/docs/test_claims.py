"""The page of claims is what its result files say, and notices when they change."""

import importlib
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def claims():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("claims")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_every_figure_of_the_page_is_that_of_its_file(claims):
    assert claims.PAGE.read_text() == claims.page(), "make it again: benchmarks/claims.py page"


def test_a_changed_result_changes_the_page(claims, tmp_path):
    shutil.copytree(claims.RESULTS, tmp_path / "results")
    path = tmp_path / "results" / "run_nano_esc50.json"
    found = json.loads(path.read_text())
    found["stages"]["pca_99"]["mean"].reverse()
    path.write_text(json.dumps(found))
    changed = claims.page(tmp_path / "results")
    row = next(
        line for line in changed.splitlines() if line.startswith("| PCA 99% dimension grows")
    )
    assert "does not" in row
    assert changed != claims.PAGE.read_text()


def test_claims_are_told_apart_and_name_their_source(claims):
    every = [claim for section in claims.SECTIONS.values() for claim in section]
    assert len(every) >= 60
    assert Counter(claim.id for claim in every).most_common(1)[0][1] == 1
    documents = Counter(claim.source[:3] for claim in every)
    assert set(documents) == {"000", "001", "002", "003", "004"}


def test_every_result_says_how_it_was_made(claims):
    for path in claims.RESULTS.glob("*.json"):
        assert json.loads(path.read_text())["commands"], path.name


def test_what_being_told_does_is_a_paired_difference_over_seeds(claims):
    studies = importlib.import_module("claims_studies")
    told, not_told = [3.0, 5.0, 4.5], [1.0, 1.5, 2.5]
    found = studies._contrast({"told": told, "not_told": not_told})
    expected = ttest_rel(told, not_told).confidence_interval()
    assert found["mean"] == pytest.approx(2.5)
    assert [found["low"], found["high"]] == pytest.approx(list(expected), rel=1e-4)
    readings = importlib.import_module("claims_study_readings")
    study = {"n_seeds": 3, "mean_of_sets": {"h": found, "rank_me_text": found}}
    assert readings.told_sign("rank_me_text", 1)(study) is True
    assert readings.told_sign("rank_me_text", -1)(study) is False
    unclear = {"n_seeds": 3, "mean_of_sets": {"h": found, "rank_me_text": found | {"low": -1.0}}}
    assert readings.told_sign("rank_me_text", 1)(unclear) is None
