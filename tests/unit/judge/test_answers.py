"""Answers of a judge, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge


def test_judge_refuses_bad_answers():
    texts = np.eye(3)
    with pytest.raises(InputError, match="no label"):
        Judge.for_labels(["a", None], ["a", "b", "c"], texts, 1.0)
    with pytest.raises(InputError, match="'z'"):
        Judge.for_labels(["a", "z"], ["a", "b", "c"], texts, 1.0)
    with pytest.raises(InputError, match="one class"):
        Judge.for_labels(["a"], ["a"], texts[:1], 1.0)
    with pytest.raises(InputError, match="clip 1 has no right answer"):
        Judge.for_captions([0, 0, 2], texts, 3, 1.0)


def test_judge_measures_by_hand():
    judge = Judge.for_labels(["a", "b"], ["a", "b", "c"], np.eye(3), scale=2.0)
    joint = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    found = judge.measure(joint, torch.arange(2), joint)
    np.testing.assert_allclose(found["margin"], [0.6 - 0.8, 0 - 1.0], atol=1e-6)
    assert found["correct"].tolist() == [0, 0]
    assert found["rank"].tolist() == [2, 3]
    want = np.log(np.exp([1.2, 1.6, 0]).sum()) - 1.2
    np.testing.assert_allclose(found["loss"][0], want, atol=1e-6)
    np.testing.assert_allclose(found["shift"], 0, atol=1e-6)
