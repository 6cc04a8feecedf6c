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
    of_neighbours,
    of_spectrum,
)
from residual_audio.metrics.neighbours import neighbour_distances
from residual_audio.metrics.spectra import eigenspectrum


def test_names_and_places_are_unique() -> None:
    assert len(BY_NAME) == len(ESTIMATORS)
    places = [estimator.printed for estimator in PRINTED]
    assert places == sorted(set(places))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.name)
def test_an_estimator_says_what_it_needs_and_only_that(estimator: Estimator) -> None:
    ways = (estimator.spectrum, estimator.neighbours, estimator.columns)
    assert sum(way is not None for way in ways) == 1
    assert bool(estimator.reads) == (estimator.needs == "columns")
    assert set(estimator.reads) <= set(BY_NAME)
    assert estimator.heading


def test_every_estimator_gives_one_number_a_unit() -> None:
    x = np.random.default_rng(0).normal(size=(3, 200, 5))
    found = of_spectrum(eigenspectrum(x)) | of_neighbours(neighbour_distances(x, 32))
    found |= of_columns(found)
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
