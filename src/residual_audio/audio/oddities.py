"""Sound that can be read but hardly heard: silence, and clips of a few samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SILENT = 1e-4
"""Peak below which a clip is called silent: −80 dB of full scale."""
SHORT_S = 0.05
"""Seconds below which a clip is called short: less than any sound one could name."""


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
