"""Presets of the sliders: gains that a run fitted, and rules, as one change of the latents each.

A latent is linear in the gains, so a preset at half strength is half of its change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.adaptation.divisions import folds_of
from residual_audio.atlas.class_answers import Answers
from residual_audio.atlas.components import ComponentsOfRun
from residual_audio.atlas.move import Rows
from residual_audio.atlas.packed import rows_of_integers
from residual_audio.direct.joint_arrays import joint_of
from residual_audio.errors import ResidualAudioError
from residual_audio.judge.of_store import clips_of
from residual_audio.results import read_result
from residual_audio.reweight.gain_files import load_gains
from residual_audio.reweight.gains import check_fits
from residual_audio.reweight.sliders import LABEL_FREE, label_free_gains, label_free_ground
from residual_audio.reweight.terms import apply_direct
from residual_audio.seals import prove_file
from residual_audio.table import read_csv
from residual_audio.types import FloatArray, Gains


@dataclass(frozen=True)
class Preset:
    """A change of all latents."""

    key: str
    label: str
    about: str
    change: FloatArray
    """[clip, latent]"""
    gains: Gains | None = None
    """As one set of gains for all clips, where it is one."""

    def piece(self, rows: Rows) -> dict[str, Any]:
        found: dict[str, Any] = {"change": rows_of_integers(self.change[rows])}
        if self.gains is not None:
            found["gains"] = {
                unit: [float(f"{v:.7g}") for v in values]
                for unit, values in self.gains.gains.items()
                if (np.asarray(values) != 1.0).any()
            }
        return found


def presets_of(run: Path, components: ComponentsOfRun, answers: Answers) -> Iterator[Preset]:
    """What can be had from this run; a preset that does not fit is passed over."""
    held_out = _fitted(run, components)
    # clips under gains that saw them would be a lie: it must come to what the run measured
    if held_out is not None and _agrees(run, components, answers, held_out.change):
        yield held_out
    spectra = {str(one.head): one.spectrum for one in components.all()}
    ground = label_free_ground(components.store, components.contributions, spectra)
    for name, about in LABEL_FREE.items():
        try:
            gains = label_free_gains(name, ground)
            change = _change(components, gains)
        except ResidualAudioError:  # a rule for blocks or texts that this model does not have
            continue
        if np.abs(change).max() > 0:
            yield Preset(f"rule-{name}", f"Rule: {name}", about, change, gains)


def _change(components: ComponentsOfRun, gains: Gains) -> FloatArray:
    parts = components.contributions
    return np.asarray(apply_direct(parts, gains), np.float64) - parts.latent


def _seed(run: Path) -> int:
    """The seed that the run's folds were drawn by."""
    for path in sorted((run / "results").glob("adapted_*.json")):
        seed = read_result(path).provenance.get("seed")
        if isinstance(seed, int):
            return seed
    return 0


def _fitted(run: Path, components: ComponentsOfRun) -> Preset | None:
    """Each clip under the gains of the fold that did not see it."""
    store = components.store
    files = sorted((run / "gains").glob("direct-fold-*.json"))
    if not files:
        return None
    folds = folds_of(clips_of(store), len(files), _seed(run))
    change: FloatArray = np.zeros_like(components.contributions.latent, dtype=np.float64)
    for fold, name in enumerate(folds.names):
        path = run / "gains" / f"direct-fold-{name}.json"
        if not path.is_file():
            return None
        gains = load_gains(path)
        check_fits(gains, store.sites, int(change.shape[-1]), store.model_info.sha256)
        if gains.path != "direct":
            return None
        test = folds.test(fold)
        change[test] = _change(components, gains)[test]
    about = f"{len(files)} folds; each clip under gains that were fitted without its fold"
    return Preset("fitted", "Fitted gains, held out", about, change)


def _agrees(run: Path, components: ComponentsOfRun, answers: Answers, change: FloatArray) -> bool:
    """Whether the accuracy under a change is one that the run's comparison has."""
    path = run / "tables" / "adapted.csv"
    if not path.is_file():
        return False
    joint = joint_of(components.store)(components.contributions.latent + change)
    right = answers.cosines(joint).argmax(1) == answers.codes
    table = read_csv(prove_file(path))
    found = table["top1"][table["kind"] == "residual"].astype(np.float64)
    return bool((np.abs(found - right.mean()) < 1.5 / len(right)).any())
