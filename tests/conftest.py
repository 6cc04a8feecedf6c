"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither read nor fill the user's cache."""
    os.environ["RESIDUAL_AUDIO_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Real recordings, published tables and golden tensors, kept beside the project."""
    folder = Path(os.environ.get("RESIDUAL_AUDIO_SHARED", PROJECT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("the reference data folder 'shared' is not beside the project")
    return folder
