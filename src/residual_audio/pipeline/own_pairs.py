"""Adapting a model to one's own pairs: from a table of files and texts to a judged checkpoint.

Everything is judged on grouped folds first: fitted without a fold, scored on it, each clip once.
Then it is fitted on all clips, and that is what is written. What is finished is kept in the folder:
the same call goes on where it stopped.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from residual_audio import provenance
from residual_audio.adaptation.comparison import compare
from residual_audio.adaptation.divisions import Division, folds_of, whole_split
from residual_audio.adaptation.methods.head_tuning import HeadTuning
from residual_audio.adaptation.methods.low_rank import LoRA
from residual_audio.adaptation.methods.method import Method
from residual_audio.adaptation.methods.registry import ENTRIES, REFERENCE, Entry
from residual_audio.adaptation.methods.residual import NETWORK, RATES, ResiDual
from residual_audio.adaptation.pair_problem import PairProblem, pair_problem
from residual_audio.data.base import Dataset
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError
from residual_audio.extraction.extraction import extract
from residual_audio.files import read_json_object, write_json, write_npz
from residual_audio.metrics.uncertainty import mean_interval, paired_difference
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.hf import check_counterpart
from residual_audio.passes.kept import load_passes
from residual_audio.passes.loop import Hearing
from residual_audio.pipeline.fine_tuned import EPOCHS, LoopFineTuning
from residual_audio.progress import SILENT, Progress
from residual_audio.results import write_result
from residual_audio.reweight.descent import FitSettings
from residual_audio.reweight.folded_checkpoint import Layout, Wrapping
from residual_audio.reweight.trained_checkpoint import NO_ADAPTER, write_trained
from residual_audio.types import FloatArray, Result, Score

How = Literal["residual", "lora", "head", "all"]


@dataclass(frozen=True)
class PairSettings:
    """How to adapt, and how it is judged and written."""

    how: How = "residual"
    """residual: gains inside the network; lora: low-rank updates; head: the joint head; all: every
    weight of the encoder."""
    to: Layout = "native"
    n_folds: int = 5
    seed: int = 0
    epochs: int | None = None
    """At most so many; None: what is good for the method."""
    licence: str | None = None


@dataclass(frozen=True)
class PairOutcome:
    """What adaptation to one's own pairs left behind."""

    before: Score
    after: Score
    """On clips that were not fitted on: each clip in the fold that tested it."""
    gain: Score
    """The paired difference, whole groups drawn."""
    checkpoint: Path
    result: Path
    skipped: dict[str, str]
    """Clips that could not be heard, and why."""
    note: str = ""
    """Where the model was trained on clips that it is judged on."""


def adapt_to_pairs(
    model: AudioTextModel,
    dataset: Dataset,
    out: Path,
    settings: PairSettings | None = None,
    *,
    progress: Progress = SILENT,
) -> PairOutcome:
    """Judge, fit on all clips, write a checkpoint below `out`.

    Trained weights stay in `model`: give a copy where the one that was given is needed again.
    """
    asked = PairSettings() if settings is None else settings
    if asked.to == "peft" and asked.how not in ("residual", "lora"):
        raise InputError(NO_ADAPTER)
    if asked.to in ("hf", "peft"):  # before hours of work
        check_counterpart(model)
    run = extract(model, dataset, out / "run", capture=("heads",), progress=progress)
    store = run.store
    ids = [str(name) for name in store.clips["id"]]
    hearing = Hearing(store.run_info.long, batch_size=16)
    passes = load_passes(model, dataset, ids, hearing, progress=progress)
    pairs = pair_problem(store, passes)
    method = _method(asked, pairs, out / "fits", progress)
    if not method.offered(pairs.problem):
        raise InputError(f"'{model.name}' cannot be adapted by '{asked.how}': take another way")
    folds = folds_of(pairs.problem.clips, asked.n_folds, asked.seed)
    before, after = _judged(pairs, folds, method, asked, out / "folds", progress)
    heard = store.heard_before
    result = _result(pairs, folds, asked, before, after)
    result = replace(result, details={**result.details, "heard_before": heard})
    written = write_result(result, out / "results")
    checkpoint = _checkpoint(pairs, method, asked, out, result, progress)
    shutil.rmtree(out / "fits", ignore_errors=True)  # states of fits that are done
    was, now, gain = result.scores
    note = heard["note"] if heard else ""
    return PairOutcome(was, now, gain, checkpoint, written, run.skipped, note)


def _checkpoint(
    pairs: PairProblem,
    method: Method,
    asked: PairSettings,
    out: Path,
    result: Result,
    progress: Progress,
) -> Path:
    """What was fitted on all clips; one that is there is left, if it is of these clips and
    settings."""
    problem = pairs.problem
    path = out / (f"{asked.how}.pt" if asked.to == "laion" else f"{asked.how}-{asked.to}")
    note = out / f"{asked.how}-{asked.to}.json"
    about = {"fit": _key(pairs, method, np.arange(len(problem)), asked.seed)}
    if path.exists():
        if not note.is_file() or read_json_object(note) != about:
            raise InputError(
                f"'{path}' was fitted on other clips or with other settings: move it away, or give "
                "another --out"
            )
        return path
    progress.step("fitting on all clips")
    with torch.enable_grad():
        split = whole_split(problem, asked.seed)
        fitted = method.fit(problem.on(split.fit, split.held_out), split)
    wrapping = Wrapping((result,), asked.licence)
    write_trained(problem.encoder.passes.model, fitted.left(), asked.to, path, wrapping)
    write_json(note, about)
    return path


def _method(asked: PairSettings, pairs: PairProblem, fits: Path, progress: Progress) -> Method:
    """The method with its settings; late stages alone where gains are meant, as they carry most.
    Fits that can be stopped lie in `fits` until they are done."""
    problem = pairs.problem
    if asked.how == "residual":
        stages = tuple(problem.stages[-2:])
        return ResiDual(
            stages=stages,
            path="network",
            objective=problem.objective,
            settings=_limited(NETWORK, asked.epochs),
            rates=RATES,
        )
    if asked.how == "all":
        return LoopFineTuning(fits, epochs=asked.epochs or EPOCHS, progress=progress)
    kinds: dict[str, Any] = {"lora": LoRA, "head": HeadTuning}
    if asked.how not in kinds:
        raise InputError(f"no way '{asked.how}' to adapt: use residual, {', '.join(kinds)}, all")
    kind = kinds[asked.how]
    found: Method = kind(settings=_limited(kind().settings, asked.epochs))
    return found


def _limited(settings: FitSettings, epochs: int | None) -> FitSettings:
    return settings if epochs is None else replace(settings, epochs=epochs)


def _judged(
    pairs: PairProblem,
    folds: Folds,
    method: Method,
    asked: PairSettings,
    kept: Path,
    progress: Progress,
) -> tuple[FloatArray, FloatArray]:
    """[clip] right or wrong, before and after; a fold that was judged before is read back."""
    reference = next(entry for entry in ENTRIES if entry.key == REFERENCE)
    entries = [reference, Entry("given", asked.how, "baseline", method)]
    hits = np.full((2, len(pairs.problem)), np.nan)
    for fold, name in enumerate(folds.names):
        test = folds.test(fold)
        file = kept / f"{_key(pairs, method, test, asked.seed)}.npz"
        progress.keeps(f"finished folds are kept in {kept.parent}, the same command continues")
        if not file.is_file():
            how = Division(seed=asked.seed, only=(name,), allow_missing=pairs.by == "captions")
            found = compare(
                pairs.problem, folds, entries, seeds=(asked.seed,), how=how, progress=progress
            )
            for outcome in found:
                if outcome.failed:
                    raise InputError(f"adapting by '{asked.how}' failed: {outcome.failed}")
            scores = [pairs.hits(outcome.scores[0, test], test) for outcome in found]
            write_npz(file, {"hits": np.stack(scores)})
        with np.load(file) as archive:
            hits[:, test] = archive["hits"]
    return hits[0], hits[1]


def _key(pairs: PairProblem, method: Method, test: np.ndarray, seed: int) -> str:
    """Names what was judged: weights, clips with their texts, method and fold."""
    ids = [(clip.id, clip.label, clip.captions) for clip in pairs.problem.clips]
    said = repr((pairs.problem.about["model"], ids, repr(method), test.tolist(), seed))
    return blake2b(said.encode(), digest_size=12).hexdigest()


def _result(
    pairs: PairProblem, folds: Folds, asked: PairSettings, before: FloatArray, after: FloatArray
) -> Result:
    problem, measure = pairs.problem, "top1" if pairs.by == "labels" else "recall_at_1"
    chance = float(np.mean([1 / pairs.n_candidates(folds.test(f)) for f in range(len(folds))]))
    scores = [
        _mean(f"{measure}_before", before, problem.groups, chance, asked.seed),
        _mean(measure, after, problem.groups, chance, asked.seed),
    ]
    gap = paired_difference(after, before, groups=problem.groups, seed=asked.seed)
    scores.append(Score(f"{measure}_gain", gap.value, gap.low, gap.high, gap.n))
    return Result(
        task=f"adapted-{asked.how}",
        model=problem.about["model"]["name"],
        dataset=problem.about["dataset"]["name"],
        split=folds.source,
        scores=tuple(scores),
        per_item={
            "clip": [clip.id for clip in problem.clips],
            "before": before.tolist(),
            "after": after.tolist(),
        },
        provenance={**provenance.collect(seed=asked.seed), **problem.about},
        details={"by": pairs.by, "how": asked.how, "folds": list(folds.names)},
    )


def _mean(name: str, hits: FloatArray, groups: Sequence[str], chance: float, seed: int) -> Score:
    known = ~np.isnan(hits)
    inside = [group for group, there in zip(groups, known, strict=True) if there]
    low, high = mean_interval(hits[known], groups=inside, seed=seed)
    n = int(known.sum())
    return Score(name, float(hits[known].mean()) if n else math.nan, low, high, n, chance)
