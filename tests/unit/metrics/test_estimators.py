"""Estimators declare themselves: names are unique, needs are met, and all of them are found."""

from __future__ import annotations

import numpy as np
import pytest

from residual_audio.metrics.estimators import (
    BY_NAME,
    ESTIMATORS,
    PRINTED,
    Estimator,
    of_columns,
    of_labels,
    of_neighbours,
    of_spectrum,
)
from residual_audio.metrics.neighbours import neighbour_distances
from residual_audio.metrics.separability import LabelledUnits, fisher, linear_probe, silhouette
from residual_audio.metrics.spectra import eigenspectrum


def test_names_and_places_are_unique() -> None:
    assert len(BY_NAME) == len(ESTIMATORS)
    places = [estimator.printed for estimator in PRINTED]
    assert places == sorted(set(places))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.name)
def test_an_estimator_says_what_it_needs_and_only_that(estimator: Estimator) -> None:
    ways = (estimator.spectrum, estimator.neighbours, estimator.columns, estimator.labels)
    assert sum(way is not None for way in ways) == 1
    assert bool(estimator.reads) == (estimator.needs == "columns")
    assert set(estimator.reads) <= set(BY_NAME)
    assert estimator.heading


def test_every_estimator_gives_one_number_a_unit() -> None:
    x = np.random.default_rng(0).normal(size=(3, 200, 5))
    found = of_spectrum(eigenspectrum(x)) | of_neighbours(neighbour_distances(x, 32))
    found |= of_columns(found) | of_labels(LabelledUnits(x, np.arange(200) % 4, np.arange(200) % 5))
    assert set(BY_NAME) <= set(found)
    for name, values in found.items():
        assert values.shape == (3,), name
        assert np.isfinite(values).all(), name


def test_scales_beyond_the_search_are_left_out() -> None:
    x = np.random.default_rng(0).normal(size=(1, 100, 3))
    found = of_neighbours(neighbour_distances(x, 8))
    assert "gride_4" in found
    assert "gride_8" not in found


def test_columns_with_a_prefix_stay_in_their_space() -> None:
    columns = {"token_pca_99": np.array([4.0]), "token_twonn": np.array([2.0])}
    assert of_columns(columns, "token_") == {"token_ln_ratio": 2.0}
    assert of_columns(columns) == {}


def test_labelled_estimates_are_those_of_their_functions_and_need_what_they_need() -> None:
    x = np.random.default_rng(0).normal(size=(2, 60, 4))
    codes, folds, sample = np.arange(60) % 3, np.arange(60) % 5, np.arange(0, 60, 2)
    found = of_labels(LabelledUnits(x, codes, folds, sample))
    np.testing.assert_array_equal(found["fisher_trace"], fisher(x, codes))
    np.testing.assert_array_equal(found["fisher_mean_ratio"], fisher(x, codes, "mean_ratio"))
    np.testing.assert_array_equal(found["silhouette"], silhouette(x[:, sample], codes[sample]))
    probe = linear_probe(x, codes, folds).accuracy
    np.testing.assert_array_equal(found["probe_accuracy"], probe)
    assert "probe_accuracy" not in of_labels(LabelledUnits(x, codes))
    one_class = np.flatnonzero(codes == 0)
    assert "silhouette" not in of_labels(LabelledUnits(x, codes, sample=one_class))
