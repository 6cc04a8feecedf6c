"""What this machine has: the facts people ask for when something does not work."""

from __future__ import annotations

import os
import platform
import re
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
    "music": (("symusic",), "descriptors of MIDI files"),
    "peft": (("peft",), "adapters that PEFT opens, proved with it"),
    "onnx": (("onnx", "onnxruntime"), "audio towers as ONNX"),
    "mteb": (("mteb",), "models in MTEB's tasks"),
}


def examine() -> dict[str, dict[str, Any]]:
    """Sections of facts; `problems` is empty on a healthy machine.

    torch is asked nothing: importing it takes longer than everything else here together.
    """
    versions = {"residual-audio": __version__, "python": sys.version.split()[0]}
    for package in ("torch", "transformers", "safetensors", "numpy", "scipy", "soundfile", "soxr"):
        versions[package] = metadata.version(package)
    device = {
        "NVIDIA GPUs": ", ".join(_gpus()) or "none",
        "torch is built for": _torch_build(),
        "Apple GPU": (platform.system(), platform.machine()) == ("Darwin", "arm64"),
        "cores": _cores(),
        "instructions": _instructions(),
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
        "problems": _problems(versions, device),
    }


def _gpus(drivers: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """Models of the cards that the driver serves."""
    found = []
    for path in sorted(drivers.glob("*/information")):
        models = re.findall(r"Model:\s*(.+)", path.read_text(encoding="utf-8", errors="replace"))
        found += [model.strip() for model in models]
    return found


def _torch_build() -> str:
    """`CPU`, `CUDA 12.8` or `ROCm 6.2`, from the file that torch keeps it in."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return "not installed"
    text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    for name, title in (("cuda", "CUDA"), ("hip", "ROCm")):
        version = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([\d.]+)", text, re.MULTILINE)
        if version:
            return f"{title} {version[1]}"
    return "CPU"


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Which wide instructions decide the speed of products; `not known` off Linux."""
    flags = re.search(r"^flags\s*:(.*)$", _read(cpuinfo), re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    names = {"avx2": "AVX2", "avx512f": "AVX512", "avx512_bf16": "AVX512-BF16", "amx_tile": "AMX"}
    return ", ".join(name for flag, name in names.items() if flag in known) or "not known"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _files() -> dict[str, Any]:
    from huggingface_hub import constants

    from residual_audio.models.families import NANO
    from residual_audio.models.hub import hub_reachable

    cache = Path(constants.HF_HUB_CACHE)
    repos = sorted(path.name for path in cache.glob("models--*")) if cache.is_dir() else []
    return {
        "Hugging Face cache": str(cache),
        "cached models": ", ".join(name[8:].replace("--", "/") for name in repos) or "none",
        "offline mode": bool(constants.HF_HUB_OFFLINE),
        "hub reachable": hub_reachable(),
        "bundled model": (NANO / "config.json").is_file(),
    }


def _problems(versions: dict[str, str], device: dict[str, object]) -> dict[str, str]:
    problems = {}
    major, minor = (int(part) for part in versions["torch"].split(".")[:2])
    if (major, minor) < (2, 10):
        problems["torch"] = (
            f"torch {versions['torch']} is too old to open pickled checkpoints safely: "
            "pip install 'torch>=2.10'"
        )
    if device["NVIDIA GPUs"] != "none" and device["torch is built for"] == "CPU":
        problems["GPU"] = (
            "there is an NVIDIA GPU, but this torch is built for the CPU only: install torch "
            "without constraints.txt to use it"
        )
    return problems
