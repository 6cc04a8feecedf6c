"""A whole study of patching over the pairs of a data set: tables and a result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from residual_audio import provenance
from residual_audio.audio.windows import LongPolicy
from residual_audio.passes.loop import Hearing
from residual_audio.patching.class_pairs import exchanges_of_dataset
from residual_audio.patching.interchange import METHODS as METHODS
from residual_audio.patching.interchange import ExchangeWay as ExchangeWay
from residual_audio.patching.measures import MeasureName
from residual_audio.patching.sets import SetSearch as SetSearch
from residual_audio.patching.study import TIME_UNITS as TIME_UNITS
from residual_audio.patching.study import PatchFound, PatchStudy, patch_study
from residual_audio.progress import SILENT, Progress
from residual_audio.surface.given import DatasetLike, ModelLike, given_dataset, given_model
from residual_audio.surface.measured import chosen_part
from residual_audio.table import Table
from residual_audio.types import Result


@dataclass(frozen=True)
class PairStudy:
    """What a study of patching leaves behind."""

    tables: tuple[Table, ...]
    result: Result
    n_exchanges: int

    @property
    def skipped(self) -> dict[str, str]:
        return dict(self.result.details["skipped"])


def patching_study(
    model: ModelLike,
    pairs: DatasetLike,
    study: PatchStudy,
    *,
    measure: MeasureName = "difference",
    limit: int | None = None,
    long: LongPolicy = "first",
    keep: Path | None = None,
    progress: Progress = SILENT,
) -> PairStudy:
    """Both directions of all pairs, by every way asked for: what `residual-audio patch` writes.

    A labelled data set without pairs gives pairs of clips of different classes, told apart by
    their prompts, or, where the model has no text side, by class centroids of other clips.
    With `keep`, finished pairs are kept in that folder and not done again.
    """
    loaded = given_model(model)
    data, split = chosen_part(given_dataset(pairs), {"limit": limit, "seed": study.seed})
    given = exchanges_of_dataset(loaded, data, measure, Hearing(long), progress, study.seed)
    found = patch_study(given, study, keep=keep, progress=progress)
    result = Result(
        task="patching",
        model=provenance.model_label(loaded),
        dataset=data.name,
        split=split,
        scores=found.scores(study.seed),
        details=_details(found) | {"skipped": dict(given.skipped)},
        provenance=provenance.collect(model=loaded, dataset=data, seed=study.seed, measure=measure),
    )
    return PairStudy(found.tables, result, len(given))


def _details(found: PatchFound) -> dict[str, object]:
    return {
        "notes": {table.name: list(table.notes) for table in found.tables},
        "agreement": [
            row
            for table in found.tables
            if table.name == "patching_agreement"
            for row in table.rows()
        ],
        "left_out": found.runs[0].left_out(),
    }
