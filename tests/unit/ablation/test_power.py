"""What a study could have shown, orders that have not seen their clips, and control tasks."""

import numpy as np
import pytest

from residual_audio.ablation.effects import About, Effects
from residual_audio.ablation.folded_curves import halves_of
from residual_audio.ablation.power import changes_tested, needed_flips, power
from residual_audio.metrics.separability import LabelledUnits, probe_accuracy, probe_control


def study(rng: np.random.Generator, effect: float, n_clips: int = 60, n_units: int = 30) -> Effects:
    before = {"margin": rng.normal(size=n_clips), "correct": np.ones(n_clips)}
    shift = np.zeros(n_units)
    shift[0] = effect
    after = {
        "margin": before["margin"] + shift[:, None] + rng.normal(size=(n_units, n_clips)),
        "correct": np.ones((n_units, n_clips)),
    }
    return Effects(tuple(f"u{i}" for i in range(n_units)), before, after, About("direct", "zero"))


def test_a_change_of_the_stated_size_is_found_as_often_as_stated():
    rng, found = np.random.default_rng(0), 0
    stated = power(study(rng, 0.0), None, None)
    for _ in range(120):
        found += changes_tested(study(rng, stated.margin), seed=1)["p_margin"][0] <= 0.05
    assert 0.68 <= found / 120 <= 0.92  # 80% power
    assert "the smallest change that 60 clips in 60 groups can show" in stated.sentence()


def test_no_unit_is_clear_of_zero_where_nothing_changes():
    rng, false = np.random.default_rng(1), 0
    for _ in range(60):
        false += bool((changes_tested(study(rng, 0.0))["q_margin"] <= 0.05).any())
    assert false / 60 <= 0.13


@pytest.mark.parametrize("level", [0.05, 0.05 / 184])
def test_fewest_flips_are_just_enough(level: float):
    k = needed_flips(level)
    assert 2 * 0.5**k <= level < 2 * 0.5 ** (k - 1)


def test_orders_are_found_on_other_groups_than_they_are_scored_on():
    groups = [str(i // 3) for i in range(30)]
    halves = halves_of(groups, seed=2)
    for half in halves:
        found = {groups[i] for i in half.found_on}
        assert not found & {groups[i] for i in half.scored_on}
        assert len(found) == 5
    assert sorted(i for half in halves for i in half.scored_on) == list(range(30))
    (circular,) = halves_of(["a", "b", "c"])
    np.testing.assert_array_equal(circular.found_on, circular.scored_on)


def test_a_control_task_is_at_chance_for_heads_that_know_the_classes():
    rng, codes = np.random.default_rng(3), np.arange(200) % 4
    x = np.eye(4)[codes] + 0.1 * rng.normal(size=(200, 4))
    units = LabelledUnits(
        x[None], codes, np.arange(200) % 5, groups=np.arange(200) // 4 * 4 + codes
    )
    known, control = probe_accuracy(units), probe_control(units)
    assert known is not None
    assert control is not None
    assert known[0] > 0.95
    assert control[0] == pytest.approx(0.25, abs=0.12)
