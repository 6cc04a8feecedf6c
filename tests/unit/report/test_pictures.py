"""What `.plot()` shows: the right numbers, with intervals, and a sentence where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_model import tiny_model

import residual_audio as ra
from residual_audio.errors import InputError

EFFECTS = ra.Table(
    "ablation",
    {
        "unit": ["s0.b0.h0", "s1.b0.h1", "s2"],
        "margin_before": [0.1, 0.1, 0.1],
        "margin_change": [0.0, -0.2, 0.3],
        "margin_low": [-0.1, -0.3, 0.2],
        "margin_high": [0.1, -0.1, np.nan],
    },
    "Answers without each unit",
)


def marks(figure):
    (axes,) = figure.axes
    return axes, axes.collections[-1].get_offsets().data


def test_a_table_shows_the_column_that_has_an_interval():
    axes, points = marks(EFFECTS.plot())
    assert axes.get_xlabel() == "margin change"
    assert points[:, 0].tolist() == [0.0, -0.2, 0.3]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(EFFECTS["unit"])
    ends = [line[:, 0].tolist() for line in axes.collections[0].get_segments()]
    assert ends == [[-0.1, 0.1], [-0.3, -0.1], [0.2, 0.3]]  # an end that is not known is the value


def test_another_column_can_be_asked_for_and_a_wrong_one_is_named():
    assert marks(EFFECTS.plot("margin_before"))[1][:, 0].tolist() == [0.1] * 3
    with pytest.raises(InputError, match="'unit' is no column of numbers"):
        EFFECTS.plot("unit")
    with pytest.raises(InputError, match="no numbers to draw"):
        ra.Table("words", {"word": ["a"]}).plot()


def test_of_a_long_table_the_largest_rows_are_shown_and_it_says_so():
    long = ra.Table("heads", {"head": [f"h{i}" for i in range(90)], "x": np.arange(90.0)})
    axes, points = marks(long.plot())
    assert "the 40 largest of 90 rows" in axes.get_title()
    assert points[:, 0].min() == 50


def test_a_result_shows_its_scores_beside_chance():
    scores = (ra.Score("top1", 0.5, 0.4, 0.6, 40, 0.1), ra.Score("ece", 0.2, 0.1, 0.3, 40))
    figure = ra.Result("zero-shot", "nano", "esc50", "all", scores).plot()
    axes, chance = marks(figure)
    assert chance[:, 0].tolist()[0] == 0.1
    assert axes.collections[1].get_offsets().data[:, 0].tolist() == [0.5, 0.2]
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_cache_shows_a_unit_over_time_and_frequency():
    noise = [np.random.default_rng(i).normal(size=8000) / 10 for i in range(2)]
    cache = tiny_model().run(noise, keep=["s2.b0.h1", "s3.b0.attention"], sample_rate=8000)
    (picture, _) = cache.plot("s3.b0.attention", clip=1).axes
    want = np.linalg.norm(cache.time_frequency("s3.b0.attention")[1], axis=-1).T
    np.testing.assert_allclose(picture.images[0].get_array(), want)
    assert cache.plot().axes[0].get_title().startswith("s2.b0.h1")
    with pytest.raises(InputError, match="no clip 2"):
        cache.plot(clip=2)
    with pytest.raises(InputError, match="nothing with a time"):
        tiny_model().run(noise, sample_rate=8000).plot()
