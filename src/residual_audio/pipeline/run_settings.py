"""What a run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from residual_audio.audio.windows import LongPolicy
from residual_audio.errors import InputError


@dataclass(frozen=True)
class RunSettings:
    """Model, data and how thorough."""

    model: str
    dataset: str
    out: Path
    root: Path | None = None
    data_options: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None
    sample: int | None = None
    """So many clips drawn by the seed, each class by its share; instead of `limit`."""
    device: str = "auto"
    batch_size: int = 8
    long: LongPolicy = "first"
    """What is heard of a clip longer than the model's window; `tile` gives every window a row."""
    hop_s: float | None = None
    """`tile`: seconds between the beginnings of windows; None: their length."""
    seed: int = 0
    n_folds: int = 5
    n_exact: int = 64
    """Clips on which blocks are also ablated exactly, by running the encoder again."""
    n_previews: int = 240
    """Clips of which the atlas keeps the sound, at most."""
    processes: int = 1
    """That draw figures. More than one needs a program that may be imported again, as commands."""
    every_method: bool = False
    """Compare every adaptation that needs no encoder; else the main ones with their controls."""
    quick: bool = False
    """Only the main methods and parts, for a first look within two minutes."""


def demo_settings(data: Path | None, out: Path, n_clips: int, seed: int) -> RunSettings:
    """A quick run of the bundled model on somebody's folder, or on synthetic sounds."""
    if data is None:
        # sounds of sources that the model was not trained on
        made = {"n_clips": n_clips, "seed": 90_000 + seed}
        return RunSettings(
            "nano",
            "synthetic",
            out,
            data_options=made,
            seed=seed,
            n_exact=32,
            quick=True,
        )
    if not data.is_dir():
        raise InputError(f"'{data}' is not a folder")
    if not any(path.is_dir() for path in data.iterdir()):
        raise InputError(f"'{data}' has no sub-folders: put each class into one of its own")
    return RunSettings("nano", "folder", out, root=data, seed=seed, quick=True, n_exact=32)
