"""A few clips to listen to on the page: short, small, with what the model heard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.data.base import Dataset
from residual_audio.errors import AudioError
from residual_audio.files import replacing, write_json
from residual_audio.seals import seal_files

RATE_HZ = 24_000
LONGEST_S = 6.0


def choose(correct: Sequence[bool], n: int, seed: int = 0) -> list[int]:
    """About half clips that were understood and half that were not, drawn by the seed."""
    rng = np.random.default_rng(seed)
    right = rng.permutation(np.flatnonzero(correct)).tolist()
    wrong = rng.permutation(np.flatnonzero(~np.asarray(correct))).tolist()
    n_wrong = min(len(wrong), n // 2)
    chosen = right[: n - n_wrong]
    return sorted(chosen + wrong[: n - len(chosen)])


def write_previews(
    run: Path, dataset: Dataset, items: Sequence[dict[str, object]], n_wanted: int = 8
) -> list[Path]:
    """Write `run/previews/`: items are dicts with id, label, prediction and score."""
    import soundfile

    clips = {clip.id: clip for clip in dataset.clips}
    folder = run / "previews"
    listing: list[dict[str, Any]] = []
    written: list[Path] = []
    for item in items:
        if len(listing) == n_wanted or item["id"] not in clips:
            continue
        try:
            wave = dataset.read(clips[item["id"]], RATE_HZ)
        except AudioError:
            continue  # it was readable when it was extracted; the page does without it
        path = folder / f"clip-{len(listing):02d}.ogg"
        with replacing(path) as temporary:
            peak = max(1.0, float(np.abs(wave).max()))
            soundfile.write(
                temporary, wave[: int(LONGEST_S * RATE_HZ)] / peak, RATE_HZ, format="OGG"
            )
        written.append(path)
        listing.append({**item, "file": path.name})
    written.append(write_json(folder / "previews.json", {"clips": listing}))
    return [*written, *seal_files(written)]
