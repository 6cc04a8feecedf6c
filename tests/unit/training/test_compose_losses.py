"""Losses and recipes of composition: exchanged captions are negatives, and mistakes are named."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from compose_recipe import run, task_of, tiny_recipe, trained
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.training.losses import at_most, centroid, exchanged, spread
from residual_audio.training.pair_data import load_pairs
from residual_audio.training.recipe import load_recipe
from residual_audio.training.training_clips import front_end_spec

# losses


def unit(*shape: int, seed: int = 0) -> Tensor:
    draw = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(draw, dim=-1)


def test_exchanged_is_the_log_odds_of_all_four_comparisons() -> None:
    audio, text = unit(1, 2, 4), unit(1, 2, 1, 4, seed=1)
    s = (text[0, :, 0] @ audio[0].T).tolist()
    pairs = [(s[0][0], s[1][0]), (s[1][1], s[0][1]), (s[0][0], s[0][1]), (s[1][1], s[1][0])]
    expected = sum(math.log1p(math.exp(3 * (wrong - right))) for right, wrong in pairs) / 4
    found = exchanged(audio, text, torch.tensor(3.0), torch.ones(1, 1, dtype=torch.bool))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_exchanged_captions_and_clips_are_pushed_apart() -> None:
    """Each caption gets a gradient from the clip it does not belong to, and the other way round."""
    audio, text = unit(3, 2, 6).requires_grad_(), unit(3, 2, 2, 6, seed=1).requires_grad_()
    told = torch.ones(3, 2, dtype=torch.bool)
    told[2] = False
    exchanged(audio, text, torch.tensor(5.0), told).backward()
    assert audio.grad is not None
    assert text.grad is not None
    with torch.no_grad():
        before = torch.einsum("itkd,iad->itka", text, audio)
        step = torch.einsum("itkd,iad->itka", text - text.grad, audio - audio.grad)
    away = (step - before)[:2]
    wrong_falls = away[:, 0, :, 1] + away[:, 1, :, 0] < away[:, 0, :, 0] + away[:, 1, :, 1]
    assert bool(wrong_falls.all())
    assert not text.grad[2].any()  # the same caption for both: nothing to tell apart


def test_spread_and_centroid_know_a_collapsed_cloud() -> None:
    even, narrow = unit(64, 8), torch.nn.functional.normalize(unit(64, 8) + 5, dim=-1)
    assert spread(even) < spread(narrow)
    assert centroid(even) < 0.1 < centroid(narrow)
    assert float(centroid(torch.cat([even, -even]))) == pytest.approx(0, abs=1e-6)


def test_spread_and_centroid_are_in_the_loss_when_asked_for(whole: Path) -> None:
    trained(whole)
    task = task_of(tiny_recipe(spread_weight=0.1, centroid_weight=0.1), whole)
    _, parts = task.loss(0)
    assert {"spread", "centroid"} <= parts.keys()


def test_a_temperature_beyond_its_limit_comes_back() -> None:
    """Where a plain clamp has no gradient at all."""
    for start, pull, moves in ((5.0, 1.0, True), (5.0, -1.0, False), (1.0, -1.0, True)):
        log_scale = torch.nn.Parameter(torch.tensor(start))
        scale = at_most(log_scale.exp(), 100.0)
        assert float(scale.detach()) == pytest.approx(min(math.exp(start), 100.0))
        (pull * scale).backward()
        assert (float(log_scale.grad or 0) != 0) is moves  # type: ignore[arg-type]


def test_the_learner_uses_that_temperature(whole: Path) -> None:
    trained(whole)
    task = task_of(tiny_recipe(), whole)
    with torch.no_grad():
        task.module.log_scale.fill_(6.0)
    task.module.scale.backward()
    assert task.module.log_scale.grad is not None
    assert float(task.module.log_scale.grad) > 0


# recipes


def test_mistakes_in_a_recipe_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"compose\.data"):
        load_recipe("nano", ["compose.data=[]"])
    with pytest.raises(InputError, match=r"compose\.volume"):
        load_recipe("nano", ["compose.volume=1"])
    with pytest.raises(InputError, match="has no stage 'compose'"):
        run(tiny_recipe().model_copy(update={"compose": None}), tmp_path, stage="compose")
    with pytest.raises(InputError, match="to begin 'compose' with"):
        run(tiny_recipe(), tmp_path, stage="compose")
    with pytest.raises(InputError, match="no compositional pairs"):
        load_pairs(
            tiny_recipe(data=[{"dataset": "synthetic"}]).compose.data,  # type: ignore[union-attr]
            front_end_spec(tiny_recipe().audio),
            Path(),
            tmp_path,
        )


def test_the_bundled_recipe_keeps_what_it_is_judged_on_out() -> None:
    compose = load_recipe("nano").compose
    assert compose is not None
    assert compose.told
    assert compose.spread_weight == compose.centroid_weight == 0
    for part in compose.data:
        assert part.options["class_pairs"] == "train"
        if part.root is not None:
            assert part.options["sources"] == "train"
            assert 4 not in part.options["folds"]
    for part in compose.validation:
        assert part.options["class_pairs"] == "held-out"
        assert 4 not in part.options.get("folds", [])
