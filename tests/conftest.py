"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Real recordings, published tables and golden tensors, kept beside the project."""
    folder = Path(os.environ.get("RESIDUAL_AUDIO_SHARED", PROJECT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("the reference data folder 'shared' is not beside the project")
    return folder
