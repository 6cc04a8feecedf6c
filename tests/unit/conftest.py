"""Two settings that rooms share: contributions made by hand, and a small model's own store."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from direct_sources import two_stages
from small_run import small_dataset, small_model
from torch import nn

from residual_audio.data.base import Dataset
from residual_audio.direct.contributions import Contributions
from residual_audio.extraction.extraction import extract
from residual_audio.judge.answers import Judge
from residual_audio.models.clap import AudioTextModel
from residual_audio.passes.kept import Passes, load_passes
from residual_audio.passes.loop import Hearing
from residual_audio.store import Store

N, D, CLASSES = 60, 12, 4
LABELS = np.arange(N) % CLASSES


@pytest.fixture(scope="module")
def parts() -> Contributions:
    return Contributions(two_stages(LABELS, D))


@pytest.fixture(scope="module")
def head() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, 8)).requires_grad_(False)


@pytest.fixture(scope="module")
def judge() -> Judge:
    classes = [f"c{i}" for i in range(CLASSES)]
    texts = np.random.default_rng(3).normal(size=(CLASSES, 8))
    return Judge.for_labels([classes[i] for i in LABELS], classes, texts, scale=10.0)


@pytest.fixture(scope="module")
def model() -> AudioTextModel:
    return small_model()


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return small_dataset()


@pytest.fixture(scope="module")
def store(model, dataset, tmp_path_factory) -> Store:
    folder = tmp_path_factory.mktemp("run")
    return extract(model, dataset, folder, capture="heads,blocks,direct", shard_size=16).store


@pytest.fixture(scope="module")
def passes(model, dataset, store) -> Passes:
    return load_passes(model, dataset, list(store.clips["id"]), Hearing(), sha256="c" * 64)
