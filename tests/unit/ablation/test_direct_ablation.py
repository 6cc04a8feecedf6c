"""Removal on the direct path: by hand, along an order, in pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from residual_audio.ablation.curves import RemovalOrder, greedy_order_direct, removal_curve_direct
from residual_audio.ablation.direct_effects import derangement, direct_ablation
from residual_audio.ablation.pairs import interactions, pairs_of
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.types import Head, units_of

N, D, CLASSES = 60, 12, 4
LABELS = np.arange(N) % CLASSES


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_direct_ablation_by_hand(parts, head, judge, mode):
    found = direct_ablation(parts, head, judge, ["s0.b0.h1"], mode=mode, seed=5)
    own = parts.head(Head(0, 0, 1))
    instead = {
        "zero": 0.0,
        "mean": own.mean(0),
        "resample": own[derangement(N, 5)],
    }[mode]
    latent = torch.from_numpy((parts.latent - own + instead).astype(np.float32))
    base = head(torch.from_numpy(parts.latent))
    want = judge.measure(head(latent), torch.arange(N), base)["margin"]
    np.testing.assert_allclose(found.after["margin"][0], want, atol=1e-5)


def test_derangement_keeps_no_one_in_place():
    for n in (2, 3, 50):
        donors = derangement(n, 1)
        assert (donors != np.arange(n)).all()
        assert sorted(donors) == list(range(n))
    with pytest.raises(InputError, match="two clips"):
        derangement(1, 0)


def test_greedy_order_curve_and_interactions(parts, head, judge):
    units = units_of(parts.sites, "head")
    order = greedy_order_direct(parts, head, judge, units, mode="mean")
    assert sorted(order) == list(range(len(units)))
    path = RemovalOrder(units, order, [0, 2, 4])
    rows = [p.row() for p in removal_curve_direct(parts, head, judge, path)]
    assert [row["removed"] for row in rows] == [0, 2, 4]
    base = head(torch.from_numpy(parts.latent))
    want = judge.measure(base, torch.arange(N), base)["margin"].mean()
    assert rows[0]["margin"] == pytest.approx(float(want), abs=1e-6)
    assert rows[0]["margin_low"] <= rows[0]["margin"] <= rows[0]["margin_high"]
    single = direct_ablation(parts, head, judge, units)
    both = direct_ablation(parts, head, judge, pairs_of(units))
    table = interactions(single, both)
    assert len(table) == 6
    row = table[0]
    assert row.interaction == pytest.approx(row.together - row.sum)


def test_a_linear_head_has_no_interactions_in_its_logits(parts):
    """With a linear measure pairs add up: the interaction table shows zeros."""
    texts = np.eye(D)[:2]
    judge = Judge.for_labels(["a"] * N, ["a", "b"], texts, 1.0)
    units = units_of(parts.sites, "head")[:2]

    class Linear(Judge):
        def logits(self, joint):
            return joint @ self.texts.T

    linear = Linear(judge.texts, judge.positive, 1.0)
    single = direct_ablation(parts, lambda x: x, linear, units)
    both = direct_ablation(parts, lambda x: x, linear, pairs_of(units))
    assert abs(interactions(single, both)[0].interaction) < 1e-5
