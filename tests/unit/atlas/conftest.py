from __future__ import annotations

from pathlib import Path

import pytest
from atlas_run import make_run, shared_run


@pytest.fixture(scope="session")
def small_atlas_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_run(tmp_path_factory, "atlas-run", make_run)
