"""How good a model is on a data set, as it is, edited, or with gains."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from residual_audio.audio.windows import LongPolicy
from residual_audio.data.base import Dataset
from residual_audio.embeddings.embedder import EmbeddingSettings
from residual_audio.embeddings.prompts import find_prompts
from residual_audio.errors import InputError, Remark
from residual_audio.evaluation.by_centroids import evaluate_by_centroids
from residual_audio.evaluation.clip_notes import N_RESAMPLES
from residual_audio.evaluation.composition import evaluate_compa
from residual_audio.evaluation.differences import paired_differences as paired_differences
from residual_audio.evaluation.model_check import check_model as check_model
from residual_audio.evaluation.retrieval import evaluate_retrieval
from residual_audio.evaluation.zero_shot import evaluate_zero_shot
from residual_audio.progress import SILENT, Progress
from residual_audio.surface.given import (
    DatasetLike,
    GainsLike,
    ModelLike,
    given_dataset,
    given_gains,
    given_model,
)
from residual_audio.surface.model import EditLike, Model
from residual_audio.surface.runs import Folds, fold_names
from residual_audio.types import Gains, Result

_ANYBODYS = ("folder", "files", "manifest")
"""Names of data sets that say nothing about which clips they are."""

Task = Literal["zero-shot", "centroids", "retrieval", "compa"]


class EvaluateOptions(TypedDict, total=False):
    """How to measure."""

    task: Task
    """Default: what the data set is made for (pairs, captions without labels, labels); a model
    without a text side is judged by `centroids` of classes."""
    prompts: str | list[str]
    """`dataset` (default), `plain`, `ensemble` … or a template with {}."""
    folds: Folds
    limit: int | None
    """At most so many clips, spread evenly over classes."""
    sample: int | None
    """So many clips drawn by the seed, as many of each class as its share."""
    long: LongPolicy
    batch_size: int
    cache: bool
    """Whether embeddings that were computed before are used, and new ones kept."""
    seed: int
    n_resamples: int
    """Bootstrap resamples behind each interval."""


def evaluate(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    root: str | Path | None = None,
    gains: GainsLike | None = None,
    edit: EditLike | None = None,
    progress: Progress = SILENT,
    **options: Unpack[EvaluateOptions],
) -> Result:
    """Scores with 95% intervals over groups, and chance; with gains or edits on request.

    >>> import residual_audio as ra
    >>> sounds = ra.load_dataset("synthetic", n_clips=40)
    >>> result = ra.evaluate("nano", sounds, cache=False)
    >>> result["top1"].n, result.task
    (40, 'zero-shot')
    """
    loaded = with_changes(given_model(model), gains, edit)
    data, split = chosen_part(given_dataset(dataset, root), options)
    task = options.get("task") or _task(data, loaded)
    common: dict[str, Any] = {
        "split": split,
        "seed": options.get("seed", 0),
        "n_resamples": options.get("n_resamples", N_RESAMPLES),
        "embedding": embedding_of(options),
        "progress": progress,
    }
    if task == "zero-shot":
        prompts = find_prompts(options.get("prompts", "dataset"), data.template)
        found = evaluate_zero_shot(loaded, data, prompts, **common)
    elif task == "centroids":
        found = evaluate_by_centroids(loaded, data, **common)
    elif task in ("retrieval", "compa"):
        found = (evaluate_retrieval if task == "retrieval" else evaluate_compa)(
            loaded, data, **common
        )
    else:
        raise InputError(f"'{task}' is no task: use zero-shot, centroids, retrieval or compa")
    if gains is None:
        return found
    adapted = adapted_result(found, given_gains(gains), data, fold_names(options.get("folds")))
    if seen := adapted.details["gains"]["seen"]:
        warnings.warn(seen, Remark, stacklevel=2)
    return adapted


def embedding_of(options: EvaluateOptions) -> EmbeddingSettings:
    """How clips are heard and kept."""
    return EmbeddingSettings(
        options.get("long", "first"),
        options.get("batch_size", 8),
        cache=options.get("cache", True),
    )


def with_changes(
    model: Model, gains: GainsLike | None = None, edit: EditLike | None = None
) -> Model:
    """The model with gains and then edits in every pass; as it is where there are none."""
    if gains is not None:
        model = model.with_edit(given_gains(gains))
    return model if edit is None else model.with_edit(edit)


def _task(data: Dataset, model: Model) -> Task:
    if data.pairs:
        return "compa"
    if len(data.classes) < 2:
        return "retrieval"
    return "centroids" if model.text is None else "zero-shot"


def chosen_part(whole: Dataset, options: EvaluateOptions) -> tuple[Dataset, str]:
    """The clips that are used, and what they are called in a result."""
    folds = fold_names(options.get("folds"))
    data = whole.select(
        folds=folds or None,
        limit=options.get("limit"),
        sample=options.get("sample"),
        seed=options.get("seed", 0),
    )
    kind = re.search(r"\bkind=(\w+)", whole.recipe) if whole.pairs else None
    said = [kind[1]] if kind else []
    said += [f"fold {'+'.join(folds)}"] if folds else []
    said += [f"partial {len(data)} of {data.part_of}"] if data.part_of else []
    return data, ", ".join(said) or "all"


def adapted_result(found: Result, gains: Gains, data: Dataset, folds: Sequence[str] = ()) -> Result:
    """A result of a model with gains: never called zero-shot, and it says what they have seen."""
    about = dict(gains.fitted_on)
    seen = _seen(about, data, folds)
    details = {**found.details, "gains": {"path": gains.path, "fitted_on": about, "seen": seen}}
    task = "adapted" if found.task == "zero-shot" else f"adapted-{found.task}"
    return replace(found, task=task, details=details)


def _seen(about: Mapping[str, Any], data: Dataset, folds: Sequence[str]) -> str | None:
    """A sentence where gains are measured on clips they were fitted on."""
    dataset = about.get("dataset") or {}
    if not isinstance(dataset, Mapping) or dataset.get("name") != data.name:
        return None
    fitted, asked = set(about.get("folds") or ()), set(folds)
    if fitted and asked and not fitted & asked:
        return None
    known = dataset.get("fingerprint")
    if data.name in _ANYBODYS and known and known != data.fingerprint():
        return (
            f"these gains were fitted on other files ({dataset.get('n_clips', 'some')} clips): a "
            "clip that is in both sets is not held out"
        )
    clips = f"folds {', '.join(sorted(fitted))}" if fitted else "all clips"
    return (
        f"these gains were fitted on {clips} of {data.name}: this is no score on held-out clips. "
        "ra.adapt(…).score is, or measure on other folds"
    )
