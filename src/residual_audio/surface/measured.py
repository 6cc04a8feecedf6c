"""How good a model is on a data set, as it is, edited, or with gains; and the shape of its space"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from residual_audio.audio.windows import LongPolicy
from residual_audio.data.base import Dataset
from residual_audio.embeddings.embedder import EmbeddingSettings
from residual_audio.embeddings.prompts import find_prompts
from residual_audio.errors import InputError
from residual_audio.evaluation.composition import evaluate_compa
from residual_audio.evaluation.retrieval import evaluate_retrieval
from residual_audio.evaluation.zero_shot import evaluate_zero_shot
from residual_audio.geometry.cloud_sources import clouds_of_model, clouds_of_run
from residual_audio.geometry.probes import probe as probe_clouds
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
from residual_audio.surface.runs import Folds, Run, fold_names
from residual_audio.types import Gains, Result

Task = Literal["zero-shot", "retrieval", "compa"]


class EvaluateOptions(TypedDict, total=False):
    """How to measure."""

    task: Task
    """Default: what the data set is made for (pairs, captions without labels, labels)."""
    prompts: str | list[str]
    """`dataset` (default), `plain`, `ensemble` … or a template with {}."""
    folds: Folds
    limit: int | None
    long: LongPolicy
    batch_size: int
    cache: bool
    """Whether embeddings that were computed before are used, and new ones kept."""
    seed: int


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
    whole = given_dataset(dataset, root)
    data, split = _part(whole, options)
    how = EmbeddingSettings(
        options.get("long", "first"),
        options.get("batch_size", 8),
        cache=options.get("cache", True),
    )
    task = options.get("task") or _task(data)
    common: dict[str, Any] = {
        "split": split,
        "seed": options.get("seed", 0),
        "embedding": how,
        "progress": progress,
    }
    if task == "zero-shot":
        prompts = find_prompts(options.get("prompts", "dataset"), data.template)
        found = evaluate_zero_shot(loaded, data, prompts, **common)
    elif task in ("retrieval", "compa"):
        found = (evaluate_retrieval if task == "retrieval" else evaluate_compa)(
            loaded, data, **common
        )
    else:
        raise InputError(f"'{task}' is no task: use zero-shot, retrieval or compa")
    if gains is None:
        return found
    adapted = adapted_result(found, given_gains(gains), data, fold_names(options.get("folds")))
    if seen := adapted.details["gains"]["seen"]:
        warnings.warn(seen, stacklevel=2)
    return adapted


def with_changes(
    model: Model, gains: GainsLike | None = None, edit: EditLike | None = None
) -> Model:
    """The model with gains and then edits in every pass; as it is where there are none."""
    if gains is not None:
        model = model.with_edit(given_gains(gains))
    return model if edit is None else model.with_edit(edit)


def _task(data: Dataset) -> Task:
    if data.pairs:
        return "compa"
    return "zero-shot" if len(data.classes) > 1 else "retrieval"


def _part(whole: Dataset, options: EvaluateOptions) -> tuple[Dataset, str]:
    """The clips that are used, and what they are called."""
    folds, limit = fold_names(options.get("folds")), options.get("limit")
    data = whole.select(folds=folds or None, limit=limit)
    said = [f"fold {'+'.join(folds)}"] if folds else []
    said += [f"partial {len(data)} of {len(whole)}"] if limit and len(data) < len(whole) else []
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
    clips = f"folds {', '.join(sorted(fitted))}" if fitted else "all clips"
    return (
        f"these gains were fitted on {clips} of {data.name}: this is no score on held-out clips. "
        "ra.adapt(…).score is, or measure on other folds"
    )


def probe(
    source: ModelLike | Run | Path,
    dataset: DatasetLike | None = None,
    *,
    root: str | Path | None = None,
    gains: GainsLike | None = None,
    n_halves: int = 50,
    progress: Progress = SILENT,
    **options: Unpack[EvaluateOptions],
) -> Result:
    """The shape of the joint space: ranks, dimensions, modality gap, uniformity, hubness …

    Of a model on a data set, or of a run (no model is loaded).

    >>> import residual_audio as ra
    >>> sounds = ra.load_dataset("synthetic", n_clips=40)
    >>> ra.probe("nano", sounds, n_halves=4, cache=False)["rankme_audio"].n
    40
    """
    seed = options.get("seed", 0)
    if isinstance(source, Run | Path):
        folder = source.folder if isinstance(source, Run) else source
        return probe_clouds(clouds_of_run(folder), n_halves=n_halves, seed=seed, progress=progress)
    if dataset is None:
        raise InputError("a model is probed on a data set: give one, or give a run")
    loaded = with_changes(given_model(source), gains)
    data, split = _part(given_dataset(dataset, root), options)
    prompts = find_prompts(options.get("prompts", "dataset"), data.template)
    how = EmbeddingSettings(
        options.get("long", "first"),
        options.get("batch_size", 8),
        cache=options.get("cache", True),
    )
    clouds = clouds_of_model(loaded, data, prompts, split=split, embedding=how, progress=progress)
    return probe_clouds(clouds, n_halves=n_halves, seed=seed, progress=progress)
