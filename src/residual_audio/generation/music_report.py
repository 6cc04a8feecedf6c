"""Generated music: all measures of the same systems in one table, and which follow listeners."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.errors import InputError
from residual_audio.generation.clap_score import clap_score
from residual_audio.generation.fad import compare_sides
from residual_audio.generation.listening_tests import analyse_ratings
from residual_audio.generation.midi import read_folder
from residual_audio.generation.music_study import MusicStudy
from residual_audio.generation.pieces import compare_pieces
from residual_audio.generation.prompted_files import read_prompts
from residual_audio.generation.questionnaire_files import score_questionnaires
from residual_audio.generation.ratings import read_ratings
from residual_audio.generation.sound_side import read_side
from residual_audio.metrics.uncertainty import correlation, fdr
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Result, Score

LOWER_IS_BETTER = frozenset(
    ["fad", "fad_infinity", "mmd", "pitch_class_kl", "pitch_class_kl_any_key", "tonal_distance"]
)
COLUMNS = (
    "fad", "fad_infinity", "mmd", "clap_score", "pitch_class_kl", "tonal_distance", "sus",
    "ueq_s_pragmatic", "ueq_s_hedonic", "csi",
)  # fmt: skip
"""Shown in the table; every other score is in the results."""


@dataclass(frozen=True)
class MeasureAgreement:
    """Spearman of a measure with the listeners' mean, signed so that + means: agrees with them."""

    measure: str
    agreement: float
    p: float
    p_permutation: float
    q: float
    """p_permutation among all measures (false discovery rate)."""
    n_systems: int


@dataclass(frozen=True)
class MusicReport:
    """One row a system; scores by measure, and how each measure ranks the systems."""

    systems: tuple[str, ...]
    measures: Mapping[str, Mapping[str, Score]]
    """measure → system → score"""
    correlations: tuple[MeasureAgreement, ...]
    """The measure that agrees most with listeners first; empty without them."""
    results: tuple[Result, ...]
    warnings: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """The table and the agreement as JSON can say them; the results have files of their own."""
        return {
            "systems": list(self.systems),
            "measures": {
                measure: {
                    system: {"value": s.value, "low": s.low, "high": s.high, "n": s.n}
                    for system, s in row.items()
                }
                for measure, row in self.measures.items()
            },
            "correlations": list(self.correlations),
            "warnings": list(self.warnings),
        }


def run_study(
    study: MusicStudy,
    model: JointEmbedder | None = None,
    *,
    scale: tuple[float, float] | None = None,
    reference_stimulus: str | None = None,
    seed: int = 0,
    embedding: EmbeddingSettings = DEFAULT,
    progress: Progress = SILENT,
) -> MusicReport:
    """Every measure that the study file has material for."""
    measured: dict[str, list[Result]] = {name: [] for name in study.systems}
    if study.needs_model:
        if model is None:
            raise InputError("the study has audio: name the model that embeds it with --model")
        for name, heard in _of_audio(study, model, seed, embedding, progress).items():
            measured[name] += heard
    if "midi" in study.reference:
        reference = read_folder(study.reference["midi"], progress=progress)
        for name, parts in study.systems.items():
            if "midi" in parts:
                pieces = read_folder(parts["midi"], progress=progress)
                measured[name].append(compare_pieces(reference, pieces, seed=seed))
    asked = None if study.questionnaires is None else score_questionnaires(study.questionnaires)
    if study.ratings is None:
        return unify(measured, None, asked)
    listened, _ = analyse_ratings(
        read_ratings(study.ratings, scale),
        reference=reference_stimulus,
        name=study.ratings.stem,
        seed=seed,
    )
    return unify(measured, listened, asked)


def _of_audio(
    study: MusicStudy,
    model: JointEmbedder,
    seed: int,
    embedding: EmbeddingSettings,
    progress: Progress,
) -> dict[str, list[Result]]:
    """System → its distance from the reference and its CLAP score."""
    reference = None
    if "audio" in study.reference:
        folder = study.reference["audio"]
        reference = read_side(folder, model, embedding=embedding, progress=progress)
    found: dict[str, list[Result]] = {}
    for name, parts in study.systems.items():
        found[name] = []
        if "audio" in parts and reference is not None:
            side = read_side(parts["audio"], model, embedding=embedding, progress=progress)
            found[name].append(compare_sides(reference, side, model, seed=seed).result)
        if "audio" in parts and "prompts" in parts:
            items = read_prompts(parts["prompts"], parts["audio"])
            found[name].append(
                clap_score(
                    model, items, name=name, root=parts["audio"], seed=seed,
                    embedding=embedding, progress=progress,
                )
            )  # fmt: skip
    return found


def unify(
    measured: Mapping[str, Sequence[Result]], heard: Result | None, asked: Result | None = None
) -> MusicReport:
    """Join results of the same systems; correlate each measure with the listeners' mean.

    `asked` are questionnaires, whose scores are named `sus/SYSTEM`.
    """
    systems = tuple(measured)
    measures: dict[str, dict[str, Score]] = {}
    for system, results in measured.items():
        for result in results:
            for score in result.scores:
                measures.setdefault(score.name, {})[system] = score
    warnings: list[str] = []
    if asked is not None:
        warnings += asked.details["warnings"]
        for score in asked.scores:
            name, _, system = score.name.partition("/")
            if system in systems:
                measures.setdefault(name, {})[system] = score
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
            "ratings or questionnaires"
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
        (*results, *(one for one in (heard, asked) if one is not None)),
        tuple(warnings),
    )


def _correlations(
    systems: Sequence[str], measures: Mapping[str, Mapping[str, Score]]
) -> list[MeasureAgreement]:
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
            MeasureAgreement(name, found.value, found.p, found.p_permutation, math.nan, found.n)
        )
    rates = fdr([row.p_permutation for row in rows])
    rows = [replace(row, q=float(q)) for row, q in zip(rows, rates, strict=True)]
    return sorted(rows, key=lambda r: 2.0 if math.isnan(r.agreement) else -r.agreement)
