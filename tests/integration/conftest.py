"""A small model, in memory and on disk, and a few sounds to extract."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_model import tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.models import native


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def dataset():
    return load_dataset("synthetic", n_clips=22, duration_s=1.0)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    native.save(tiny_model(text=False), folder)
    return folder
