"""What is made small, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.reweight.objectives import (
    answer_entropy,
    contrastive,
    cross_entropy,
    modality_gap,
    objective,
    parse_objective,
    spread,
)


def test_objectives_by_hand():
    judge = Judge.for_labels(["a", "b"], ["a", "b"], np.eye(2), scale=1.0)
    joint = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    clips = torch.arange(2)
    want = float(np.log(np.e + 1) - 1)
    assert float(cross_entropy(judge)(joint, clips)) == pytest.approx(want)
    assert float(contrastive(judge)(joint, clips)) == pytest.approx(want)
    p = np.array([np.e, 1]) / (np.e + 1)
    entropy = float(-(p * np.log(p)).sum())
    assert float(answer_entropy(judge)(joint, clips)) == pytest.approx(entropy - np.log(2))
    assert float(modality_gap(judge)(joint, clips)) == pytest.approx(0, abs=1e-12)
    assert float(spread()(joint, clips)) == pytest.approx(-4.0)
    both = objective("cross-entropy,spread:0.5", judge)
    assert float(both(joint, clips)) == pytest.approx(want - 2.0)
    assert parse_objective("entropy:1,gap:0.5") == {"entropy": 1.0, "gap": 0.5}
    with pytest.raises(InputError, match="'luck'"):
        objective("gap:0.5,luck", judge)
    with pytest.raises(InputError, match="not a number"):
        parse_objective("gap:much")


def test_contrastive_with_several_captions_counts_none_as_a_negative():
    judge = Judge.for_captions([0, 0, 1], np.array([[1, 0], [1, 0], [0, 1.0]]), 2, scale=1.0)
    joint = torch.eye(2)
    found = float(contrastive(judge)(joint, torch.arange(2)))
    to_text = np.mean([np.log(2 * np.e + 1) - np.log(2 * np.e), np.log(np.e + 2) - 1])
    to_audio = np.log(np.e + 1) - 1
    assert found == pytest.approx((to_text + to_audio) / 2, rel=1e-5)
