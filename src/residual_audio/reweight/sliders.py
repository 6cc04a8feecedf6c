"""Gains from sliders: λ by unit name, without spectra, which the run itself gives.

The atlas saves `{"sliders": {"s3.b0.h0": [1, 0.5], "s3": [0.8]}, …}`: for each unit the gain of the
whole, then those of its first components, which count from 1 on top of it. A component j of a head
thus has λ = whole + (λ_j − 1), all others have that of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.files import read_json_object
from residual_audio.reweight.axes import Components, direct_spectra
from residual_audio.reweight.gains import check_gains
from residual_audio.types import FloatArray, Gains, Spectrum, parse_unit

FORMAT = "residual-audio-sliders"

Sliders = Mapping[str, Sequence[float]]


def read_sliders(path: Path) -> dict[str, list[float]]:
    """Unit → gains, from a file that the atlas saved; a preset in it is an error that names it."""
    record = read_json_object(path)
    if record.get("format") != FORMAT or not isinstance(record.get("sliders"), dict):
        raise InputError(f"'{path}' is not a file of sliders that an atlas saved")
    if record.get("presets"):
        raise InputError(
            f"'{path}' holds the preset '{next(iter(record['presets']))}', which is no gain of one "
            "unit: load the run's own gains, or set sliders without a preset"
        )
    return {str(unit): [float(v) for v in values] for unit, values in record["sliders"].items()}


def gains_of_sliders(sliders: Sliders | Path | str, contributions: Contributions) -> Gains:
    """Direct-path gains in the spectra of these contributions (all clips of a store)."""
    if isinstance(sliders, str | Path):
        sliders = read_sliders(Path(sliders))
    gains: dict[str, FloatArray] = {}
    spectra: dict[str, Spectrum] = {}
    for name, values in sliders.items():
        if not len(values):
            raise InputError(f"the slider of '{name}' holds no gain")
        unit = parse_unit(name, contributions.sites)
        whole, single = float(values[0]), np.asarray(values[1:], np.float64)
        fine = bool((single != 1.0).any())
        kept = Components(coarse=not fine).of(direct_spectra(contributions, [unit])[unit.name])
        if fine and len(single) > len(kept.basis):
            raise InputError(
                f"'{name}' has {len(kept.basis)} components, the slider {len(single)} gains"
            )
        spectra[unit.name] = kept
        gains[unit.name] = np.full(max(1, len(kept.basis)), whole)
        if fine:
            gains[unit.name][: len(single)] += single - 1.0
    return check_gains(Gains(gains, spectra, path="direct"))
