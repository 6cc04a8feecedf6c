"""The bundled sounds as a reference run: made once, continued, and held like any other run."""

from __future__ import annotations

import numpy as np
import pytest

from residual_audio.adaptation import synthetic_reference
from residual_audio.adaptation.divisions import whole_split
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.problem import problem_of
from residual_audio.adaptation.references import references_of
from residual_audio.adaptation.synthetic_reference import with_synthetic
from residual_audio.errors import InputError
from residual_audio.progress import Progress


class Lines(Progress):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture
def few(monkeypatch, tmp_path):
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path))
    monkeypatch.setattr(synthetic_reference, "N_CLIPS", 82)


def test_synthetic_sounds_are_heard_once_and_held(store, passes, few, monkeypatch):
    problem = problem_of(store, passes=passes)
    about, lines = problem.about["model"], Lines()
    (folder,) = with_synthetic(("synthetic",), about, passes.model, lines)
    assert "82 synthetic sounds go through small once" in lines.said[0]
    monkeypatch.setattr(synthetic_reference, "extract", _not_again)
    assert with_synthetic(("synthetic", "other"), about, None, lines) == (folder, "other")
    (reference,) = references_of(("synthetic",), problem)
    assert reference.name == "synthetic"
    assert len(reference.judge) == 82
    method = ResiDual(stages=(3,), unbounded=True, keep="synthetic", max_loss=-1.0)
    gains = method.fit(problem, whole_split(problem)).gains
    # nothing may be lost, so nothing moves
    assert all(np.array_equal(values, np.ones_like(values)) for values in gains.gains.values())
    assert "lost on synthetic" in gains.fitted_on


def _not_again(*_, **__):
    raise AssertionError("the sounds were heard again")


def test_another_model_is_not_asked(store, model, few):
    about = {"name": "small", "sha256": "d" * 64}
    with pytest.raises(InputError, match="not the model of this run"):
        with_synthetic(("synthetic",), about, model)
    with pytest.raises(InputError, match="give --model"):
        with_synthetic(("synthetic",), about)
