"""The page of claims is what its result files say, and notices when they change."""

import importlib
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

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


def test_every_verdict_has_its_rule(claims):
    every = [claim for section in claims.SECTIONS.values() for claim in section]
    open_ones = {claim.id for claim in every if isinstance(claim, claims.OpenClaim)}
    assert all(len(claim.rule) > 5 for claim in every if claim.id not in open_ones)
    assert len(open_ones) < len(every) / 5


def test_steps_over_stages_are_welch_s(claims):
    trends = importlib.import_module("claims_trends")
    rng = np.random.default_rng(0)
    a, b = rng.normal(1.0, 1.0, 8), rng.normal(2.0, 0.5, 16)
    found = trends.contrast(
        [a.mean(), b.mean()], [a.std(ddof=1), b.std(ddof=1)], [8, 16], [-1.0, 1.0]
    )
    known = ttest_ind(b, a, equal_var=False)
    assert found.p == pytest.approx(known.pvalue)
    assert [found.low, found.high] == pytest.approx(list(known.confidence_interval()))


@pytest.mark.parametrize(
    ("means", "expected"),
    [([1.0, 2, 3, 4], True), ([4.0, 3, 2, 1], False), ([1.0, 2, 3, 3.01], None)],
)
def test_a_trend_that_is_not_clear_cannot_be_told(claims, means, expected):
    trends = importlib.import_module("claims_trends")
    of = {"mean": means, "std": [0.3] * 4}
    assert trends.rises("x")({"stages": {"x": of, "n_heads": [8, 16, 96, 64]}}) is expected


def test_cells_are_those_of_the_composition_study(claims):
    cells = importlib.import_module("claims_cells")
    kept = json.loads((claims.RESULTS / "cells.json").read_text())
    assert kept["cells"] == cells._composition_cells(), "make it again: benchmarks/claims.py cells"


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
