"""Finds golden tensors: beside the project, and where `RESIDUAL_AUDIO_GOLDEN` says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

PROJECT = Path(__file__).resolve().parents[2]


def golden_folders() -> list[Path]:
    """Every folder `reference/golden*` of the shared data, and one or more in the environment."""
    shared = Path(os.environ.get("RESIDUAL_AUDIO_SHARED", PROJECT.parent / "shared"))
    found = sorted((shared / "reference").glob("golden*"))
    named = os.environ.get("RESIDUAL_AUDIO_GOLDEN", "")
    found += [Path(part) for part in named.split(os.pathsep) if part]
    return list(dict.fromkeys(folder.resolve() for folder in found if folder.is_dir()))


def family_of(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text()).get("family", folder.name))


def discover(is_wanted: Callable[[str], bool]) -> list[Path]:
    """Folders of these families, whatever the folders are called."""
    places = ("config.json", "*/config.json", "*/*/config.json")
    found = {
        path.parent
        for folder in golden_folders()
        for place in places
        for path in folder.glob(place)
        if (path.parent / "io.safetensors").is_file()
    }
    return [path for path in sorted(found) if is_wanted(family_of(path))]


def assert_relative(name: str, ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    """Within the tolerance, relative to the largest value where that is more than 1: streams grow
    with depth, and float32 rounds in proportion."""
    scale = max(1.0, float(theirs.abs().max()))
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.numpy(), atol=tolerance * scale, rtol=0, err_msg=name
    )
