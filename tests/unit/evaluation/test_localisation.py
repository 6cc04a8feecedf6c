"""Localisation by time maps: judged by where the sounds are, chance where nothing is known."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.tiny_model import tiny_model

from residual_audio.data.base import Card, Dataset
from residual_audio.direct.time_map import TimeMap
from residual_audio.errors import InputError
from residual_audio.evaluation.localisation import _judged, evaluate_localisation
from residual_audio.types import Clip


def a_map(values: list[float]) -> TimeMap:
    parts = {"embedding": np.array(values)}
    return TimeMap("t", sum(values), 0.0, 1.0, parts, {"embedding": 0}, np.zeros((2, 2)))


def test_a_map_is_right_where_its_text_has_more_in_its_own_part():
    early, late = a_map([3, 1, 0, 0]), a_map([0, 0, 1, 2])
    assert dict(_judged(early, late, 0.4))["own_part"] == 1.0
    assert dict(_judged(late, early, 0.4))["own_part"] == 0.0
    # both maps lean to the end: half of the texts are right, but the contrast still tells
    first, second = a_map([1, 1, 2, 2]), a_map([0, 0, 3, 3])
    judged = dict(_judged(first, second, 0.4))
    assert (judged["own_part"], judged["contrast"]) == (0.5, 1.0)


def test_both_orders_of_a_pair_with_one_map_for_all_are_at_chance():
    """A model that hears no difference (silence everywhere) is right half of the time or never."""
    card = Card("two", "", "pairs", "", "", "", "", "")
    clips = tuple(Clip(f"{i}-{side}", group=str(i)) for i in range(6) for side in "ab")
    rng = np.random.default_rng(0)
    noise = rng.normal(size=8000).astype(np.float32)
    data = Dataset("two", None, clips, card, make=lambda clip, rate: noise)
    texts = {c.id: ("x", "y") if c.id.endswith("a") else ("y", "x") for c in clips}
    found = evaluate_localisation(tiny_model(), data, texts)
    assert found["own_part"].value == 0.5
    assert found["contrast"].value == 0.5
    assert (found["own_part"].n, found["own_part"].chance) == (12, 0.5)
    assert {f"own_part_s{s}" for s in range(4)} <= {score.name for score in found.scores}
    with pytest.raises(InputError, match="no clip"):
        evaluate_localisation(tiny_model(), data, {})
