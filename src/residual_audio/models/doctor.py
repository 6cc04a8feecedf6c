"""What this machine has: the facts people ask for when something does not work."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from residual_audio import __version__

EXTRAS = {
    "viz": (("umap",), "UMAP of fingerprints"),
    "sweep": (("optuna",), "hyper-parameter sweeps"),
    "cluster": (("ray",), "extraction and sweeps on a Ray cluster"),
    "codecs": (("av",), "m4a, wma and other formats beyond libsndfile"),
    "export": (("h5py", "zarr"), "stores as HDF5 or Zarr"),
    "track": (("tensorboard",), "TensorBoard logs of training"),
    "music": (("pretty_midi",), "descriptors of MIDI files"),
}


def examine() -> dict[str, dict[str, Any]]:
    """Sections of facts; `problems` is empty on a healthy machine."""
    import soundfile
    import torch

    versions = {"residual-audio": __version__, "python": sys.version.split()[0]}
    for package in ("torch", "transformers", "safetensors", "numpy", "scipy", "soundfile", "soxr"):
        versions[package] = metadata.version(package)
    versions["libsndfile"] = soundfile.__libsndfile_version__
    cuda = torch.cuda.is_available()
    device = {
        "cuda": torch.cuda.get_device_name(0) if cuda else False,
        "mps": torch.backends.mps.is_available(),
        "cores": os.cpu_count(),
        "torch threads": torch.get_num_threads(),
        "cpu capability": torch.backends.cpu.get_cpu_capability(),
    }
    return {
        "versions": versions,
        "device": device,
        "files": _files(),
        "extras": {
            extra: {
                "missing": [name for name in modules if find_spec(name) is None],
                "purpose": purpose,
            }
            for extra, (modules, purpose) in EXTRAS.items()
        },
        "problems": _problems(versions),
    }


def _files() -> dict[str, Any]:
    from huggingface_hub import constants

    from residual_audio.models.hub import hub_reachable
    from residual_audio.models.registry import NANO

    cache = Path(constants.HF_HUB_CACHE)
    repos = sorted(path.name for path in cache.glob("models--*")) if cache.is_dir() else []
    return {
        "Hugging Face cache": str(cache),
        "cached models": ", ".join(name[8:].replace("--", "/") for name in repos) or "none",
        "offline mode": bool(constants.HF_HUB_OFFLINE),
        "hub reachable": hub_reachable(),
        "bundled model": (NANO / "config.json").is_file(),
    }


def _problems(versions: dict[str, str]) -> dict[str, str]:
    problems = {}
    major, minor = (int(part) for part in versions["torch"].split(".")[:2])
    if (major, minor) < (2, 10):
        problems["torch"] = (
            f"torch {versions['torch']} is too old to open pickled checkpoints safely: "
            "pip install 'torch>=2.10'"
        )
    return problems
