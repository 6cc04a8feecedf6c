"""Generated music: all measures of the same systems in one table, and which follow listeners.

A study file (JSON) names the systems and what there is of each; paths are relative to it:

    {"reference": {"audio": "ref/", "midi": "ref-midi/"},
     "systems": {"A": {"audio": "a/", "midi": "a-midi/", "prompts": "prompts.csv"}, "B": {…}},
     "ratings": "mushra.csv"}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.errors import InputError
from residual_audio.files import read_json
from residual_audio.generation import clap_score, fad, mushra, symbolic
from residual_audio.generation.ratings import read_ratings
from residual_audio.metrics.uncertainty import correlation
from residual_audio.types import Result, Score

Advance = Callable[[int], object]

LOWER_IS_BETTER = frozenset(
    ["fad", "fad_infinity", "mmd", "pitch_class_kl", "pitch_class_kl_any_key", "tonal_distance"]
)
COLUMNS = ("fad", "fad_infinity", "mmd", "clap_score", "pitch_class_kl", "tonal_distance")
"""Shown in the table; every other score is in the results."""


@dataclass(frozen=True)
class StudyFile:
    """What a study file asks for, with paths made absolute."""

    reference: Mapping[str, Path]
    systems: Mapping[str, Mapping[str, Path]]
    ratings: Path | None

    @property
    def needs_model(self) -> bool:
        return any("audio" in parts for parts in self.systems.values())


@dataclass(frozen=True)
class MusicReport:
    """One row a system; scores by measure, and how each measure ranks the systems."""

    systems: tuple[str, ...]
    measures: Mapping[str, Mapping[str, Score]]
    """measure → system → score"""
    correlations: tuple[dict[str, Any], ...]
    results: tuple[Result, ...]
    warnings: tuple[str, ...]


def read_study_file(path: Path) -> StudyFile:
    """Read and check; every path must exist."""
    document = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("systems"), dict):
        raise InputError(f"'{path}' needs an object 'systems' that names each system's folders")
    base = path.parent

    def paths(given: Any, whose: str) -> dict[str, Path]:
        if not isinstance(given, dict):
            raise InputError(f"'{path}': {whose} must be an object with audio, midi or prompts")
        unknown = sorted(set(given) - {"audio", "midi", "prompts"})
        if unknown:
            raise InputError(
                f"'{path}': {whose} has '{unknown[0]}', known are audio, midi, prompts"
            )
        found = {name: base / str(value) for name, value in given.items()}
        for name, one in found.items():
            if not one.exists():
                raise InputError(f"'{path}': {name} of {whose} is not there: '{given[name]}'")
        return found

    systems = {
        str(name): paths(given, f"system '{name}'") for name, given in document["systems"].items()
    }
    if not systems:
        raise InputError(f"'{path}' names no system")
    ratings = base / str(document["ratings"]) if document.get("ratings") else None
    if ratings is not None and not ratings.is_file():
        raise InputError(f"'{path}': the ratings '{document['ratings']}' are not there")
    return StudyFile(paths(document.get("reference", {}), "the reference"), systems, ratings)


def run_study(
    study: StudyFile,
    model: Any = None,
    *,
    scale: tuple[float, float] | None = None,
    reference_stimulus: str | None = None,
    batch_size: int = 8,
    cache: bool = True,
    seed: int = 0,
    advance: Advance | None = None,
) -> MusicReport:
    """Every measure that the study file has material for."""
    measured: dict[str, list[Result]] = {name: [] for name in study.systems}
    reading: dict[str, Any] = {"batch_size": batch_size, "cache": cache, "advance": advance}
    reference_side = None
    if study.needs_model and model is None:
        raise InputError("the study has audio: name the model that embeds it with --model")
    if study.needs_model and "audio" in study.reference:
        reference_side = fad.read_side(study.reference["audio"], model, **reading)
    reference_pieces = None
    if "midi" in study.reference:
        reference_pieces = symbolic.read_folder(study.reference["midi"])
    for name, parts in study.systems.items():
        if "audio" in parts and reference_side is not None:
            side = fad.read_side(parts["audio"], model, **reading)
            measured[name].append(fad.compare_sides(reference_side, side, model, seed=seed).result)
        if "audio" in parts and "prompts" in parts:
            items = clap_score.read_prompts(parts["prompts"], parts["audio"])
            measured[name].append(
                clap_score.clap_score(
                    model, items, name=name, root=parts["audio"], seed=seed, **reading
                )
            )
        if "midi" in parts and reference_pieces is not None:
            pieces = symbolic.read_folder(parts["midi"])
            measured[name].append(symbolic.compare_pieces(reference_pieces, pieces, seed=seed))
    heard = None
    if study.ratings is not None:
        ratings = read_ratings(study.ratings, scale)
        heard, _ = mushra.analyse_ratings(
            ratings, reference=reference_stimulus, name=study.ratings.stem, seed=seed
        )
    return unify(measured, heard)


def unify(measured: Mapping[str, Sequence[Result]], heard: Result | None) -> MusicReport:
    """Join results of the same systems; correlate each measure with the listeners' mean."""
    systems = tuple(measured)
    measures: dict[str, dict[str, Score]] = {}
    for system, results in measured.items():
        for result in results:
            for score in result.scores:
                measures.setdefault(score.name, {})[system] = score
    warnings: list[str] = []
    if heard is not None:
        means = {
            score.name.removeprefix("mean/"): score
            for score in heard.scores
            if score.name.startswith("mean/")
        }
        measures["listeners"] = {s: means[s] for s in systems if s in means}
        absent = [s for s in systems if s not in means]
        if absent:
            warnings.append(
                f"the listening test has no system named {', '.join(absent)} (it has "
                f"{', '.join(sorted(means))})"
            )
    measures = {name: row for name, row in measures.items() if row}
    if not measures:
        raise InputError(
            "there is nothing to report: give the reference and the systems audio or midi folders, "
            "or ratings"
        )
    if len(systems) < 6:
        warnings.append(
            f"{len(systems)} systems: a rank correlation over so few can hardly be told from chance"
        )
    results = [result for found in measured.values() for result in found]
    return MusicReport(
        systems,
        measures,
        tuple(_correlations(systems, measures)),
        tuple(results + ([heard] if heard is not None else [])),
        tuple(warnings),
    )


def _correlations(
    systems: Sequence[str], measures: Mapping[str, Mapping[str, Score]]
) -> list[dict[str, Any]]:
    """Spearman of each measure with the listeners, signed so that + means: agrees with them."""
    if "listeners" not in measures:
        return []

    def column(name: str) -> np.ndarray:
        row = measures[name]
        return np.array([row[s].value if s in row else math.nan for s in systems])

    heard, rows = column("listeners"), []
    for name in measures:
        if name == "listeners":
            continue
        values = -column(name) if name in LOWER_IS_BETTER else column(name)
        if name.endswith("_difference"):
            # either direction is away from the reference
            values = -np.abs(values)
        found = correlation(values, heard, "spearman")
        rows.append(
            {
                "measure": name,
                "agreement": found.value,
                "p": found.p,
                "p_permutation": found.p_permutation,
                "n_systems": found.n,
            }
        )
    return sorted(rows, key=lambda r: -r["agreement"] if r["agreement"] == r["agreement"] else 2.0)
