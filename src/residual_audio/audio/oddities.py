"""Sound that can be read but hardly heard: silence, and clips of a few samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

SILENT = 1e-4
"""Peak below which a clip is called silent: −80 dB of full scale."""
SHORT_S = 0.05
"""Seconds below which a clip is called short: less than any sound one could name."""


PADDED = "more than half of its window is padding"
MANY_PADDED = (
    "{n:,} clips fill less than half of the model's window; the rest is silence, which counts in "
    "every mean over tokens: --pool sounding leaves it out"
)


def padded(n_samples: int, window: int) -> bool:
    """Whether silence fills most of a window of so many samples."""
    return 2 * n_samples < window


def apart_from_padding(remarks: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Remarks on single clips, and one line about those that are mostly padded."""
    others = {name: why for name, why in remarks.items() if why != PADDED}
    n = len(remarks) - len(others)
    return others, [MANY_PADDED.format(n=n)] if n else []


def oddity(wave: npt.NDArray[np.float32], sample_rate_hz: int) -> str | None:
    """What a reader should know about a clip before trusting what was measured on it."""
    if len(wave) < SHORT_S * sample_rate_hz:
        ms = 1000 * len(wave) / sample_rate_hz
        return f"only {ms:.1f} ms long ({len(wave)} samples at {sample_rate_hz} Hz)"
    peak = float(np.abs(wave).max())
    if peak < SILENT:
        level = f"{20 * np.log10(peak):.0f} dB" if peak else "digital zero"
        return f"silent (peak {level})"
    return None
