"""Gains from sliders: λ by unit name, without spectra, which the run itself gives.

The atlas has `{"s3.b0.h0": [1, 0.5], "s3": [0.8]}`: for each unit the gain of the whole, then those
of its first components, which count from 1 on top of it. A component j of a head thus has
λ = whole + (λ_j − 1), all others have that of the whole. Rules that look at no label add to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_arrays import joint_of
from residual_audio.errors import InputError
from residual_audio.reweight.axes import Components, direct_spectra
from residual_audio.reweight.gains import blend, check_gains
from residual_audio.reweight.rules import STRATEGIES, Ground
from residual_audio.store import Store
from residual_audio.types import FloatArray, Gains, Spectrum, parse_unit, units_of

LABEL_FREE = {
    "prune-early": "early heads keep an eighth of their components",
    "amplify-minor": "minor components of the middle blocks × 1.5",
    "suppress-degenerate": "weakest components of the last blocks off",
    "window": "middle components of the late stages × 1.5",
    "text-aligned": "components by how far they point along the class texts",
}
"""Rules that look at no label, so that all clips may be shown under them."""

Sliders = Mapping[str, Sequence[float]]


def label_free_ground(
    store: Store, contributions: Contributions, spectra: Mapping[str, Spectrum] | None = None
) -> Ground:
    """What rules that look at no label look at: as many components of each head as it has
    dimensions, as the fitted gains have them, and the class texts if there are any."""
    if spectra is None:
        spectra = direct_spectra(contributions, units_of(store.sites, "head"))
    kept = {
        str(head): Components(store.site_of(head)[0].d_head).of(spectra[str(head)])
        for head in store.all_heads
    }
    step = joint_of(store).derivative(np.asarray(store.latent(), np.float64).mean(0)[None])
    texts = store.class_embeddings()
    return Ground(
        kept,
        store.sites,
        joint_axes=lambda unit: kept[unit].basis @ step,
        texts=None if texts is None else _unit_rows(texts),
        about={"path": "direct"},
    )


def label_free_gains(name: str, ground: Ground) -> Gains:
    """A rule by name, if it looks at no label."""
    if name not in LABEL_FREE:
        raise InputError(f"'{name}' is no rule of the atlas: choose among {', '.join(LABEL_FREE)}")
    return STRATEGIES[name](ground)


def gains_of_sliders(
    sliders: Sliders, contributions: Contributions, rules: Sequence[Gains] = ()
) -> Gains:
    """Direct-path gains in the spectra of these contributions (all clips of a store); gains of
    rules add to those of the sliders."""
    gains: dict[str, FloatArray] = {}
    spectra: dict[str, Spectrum] = {}
    ruled = _added(rules)
    for name in dict.fromkeys((*sliders, *ruled)):
        values = sliders.get(name, [1.0])
        if not len(values):
            raise InputError(f"the slider of '{name}' holds no gain")
        unit = parse_unit(name, contributions.sites)
        whole, single = float(values[0]), np.asarray(values[1:], np.float64)
        fine = bool((single != 1.0).any()) or name in ruled
        kept = Components(coarse=not fine).of(direct_spectra(contributions, [unit])[unit.name])
        if fine and len(single) > len(kept.basis):
            raise InputError(
                f"'{name}' has {len(kept.basis)} components, the slider {len(single)} gains"
            )
        spectra[unit.name] = kept
        found = np.full(max(1, len(kept.basis)), whole)
        if fine:
            found[: len(single)] += single - 1.0
            found[: len(ruled.get(name, ()))] += ruled.get(name, 0.0)
        gains[unit.name] = found
    return check_gains(Gains(gains, spectra, path="direct"))


def _added(rules: Sequence[Gains]) -> dict[str, FloatArray]:
    """λ − 1 of all rules together, for the units that any of them moves."""
    total: dict[str, FloatArray] = {}
    for rule in rules:
        for unit, values in rule.gains.items():
            change = np.asarray(values, np.float64) - 1.0
            if change.any():
                total[unit] = total.get(unit, np.zeros(len(change))) + change
    return total


def rules_of(
    store: Store, contributions: Contributions, amounts: Mapping[str, float]
) -> list[Gains]:
    """Rules by name, each at its strength: 0 is none of it, 1 all of it."""
    if not amounts:
        return []
    ground = label_free_ground(store, contributions)
    return [blend(label_free_gains(name, ground), amount) for name, amount in amounts.items()]


def _unit_rows(vectors: FloatArray) -> FloatArray:
    rows = np.asarray(vectors, np.float64)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
