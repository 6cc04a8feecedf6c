"""BitFit: only biases move, and they are put back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from small_run import small_dataset, small_model

from residual_audio.adaptation.divisions import folds_of, splits_of
from residual_audio.adaptation.methods.bitfit import SETTINGS, BitFit
from residual_audio.adaptation.methods.unadapted import ZeroShot
from residual_audio.adaptation.problem import problem_of
from residual_audio.extraction.extraction import extract
from residual_audio.passes.kept import load_passes
from residual_audio.passes.loop import Hearing


def test_only_biases_are_trained_and_put_back(tmp_path):
    model, dataset = small_model(), small_dataset()
    store = extract(model, dataset, tmp_path, capture="heads", shard_size=16).store
    passes = load_passes(model, dataset, list(store.clips["id"]), Hearing())
    problem = problem_of(store, passes=passes)
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    split = replace(split, held_out=split.held_out[:0])  # train for a fixed number of epochs
    before = {name: value.clone() for name, value in model.encoder.named_parameters()}
    found = BitFit(replace(SETTINGS, learning_rate=0.01)).fit(problem, split)
    biases = [value for name, value in before.items() if name.endswith(".bias")]
    assert found.n_parameters == sum(value.numel() for value in biases)
    assert 0 < found.n_parameters < sum(value.numel() for value in before.values()) / 10
    assert not np.allclose(found.scores, ZeroShot().fit(problem, split).scores)
    for name, value in model.encoder.named_parameters():
        assert torch.equal(value, before[name])
        assert not value.requires_grad or value.grad is None
