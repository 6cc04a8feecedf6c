"""`residual-audio evaluate`: zero-shot and retrieval scores of several models on several sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from residual_audio.cli import inputs, options
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.scores import finish, print_scores, shown
from residual_audio.cli.terminal import watching

if TYPE_CHECKING:
    from residual_audio.evaluation.differences import ModelDifference
    from residual_audio.types import Result


def run(
    task: Annotated[
        Literal["zero-shot", "centroids", "retrieval"] | None,
        typer.Option(
            "--task", "-t", help="What to measure: zero-shot, or centroids where there is no text."
        ),
    ] = None,
    model: options.Models = ["nano"],  # noqa: B006, typer copies it
    dataset: options.Datasets = None,
    root: options.Roots = None,
    gains: options.Gains = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            "--prompts",
            help="dataset, plain, sound, ensemble … or a template with {}; repeat for an ensemble.",
        ),
    ] = None,
    fold: options.Folds = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    data_option: options.DataOption = None,
    long: options.Long = "first",
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    seed: options.Seed = 0,
    resamples: options.Resamples = 1000,
    log_items: options.LogItems = False,
    no_cache: options.NoCache = False,
    out: options.ResultsOut = Path("results"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score MODELS on DATASETS: one table, one result file each, with intervals and chance.

    Zero-shot: top-1, top-5, macro-F1, mAP, calibration. Retrieval: R@1/5/10, mAP@10 and median
    rank in both directions. Centroids: the same as zero-shot, each class being the mean of its
    clips in other grouped folds; it needs no texts.
    Intervals resample groups of recordings, not clips.
    """
    from residual_audio.results import result_to_dict, write_result
    from residual_audio.surface.measured import evaluate, paired_differences

    sets = inputs.load_datasets(dataset, root, data_option)
    found_gains = inputs.read_gains(gains)
    results, paths = [], []
    for loaded in inputs.load_models(model, device):
        for data in sets:
            with watching(quiet or json) as progress, inputs.noting():
                found = evaluate(
                    loaded,
                    data,
                    task=task or ("zero-shot" if loaded.text is not None else "centroids"),
                    gains=found_gains,
                    prompts=prompts or ["dataset"],
                    folds=fold,
                    limit=limit,
                    sample=sample,
                    long=long,
                    batch_size=batch_size,
                    cache=not no_cache,
                    seed=seed,
                    n_resamples=resamples,
                    progress=progress,
                )
            results.append(found)
            paths.append(write_result(found, out, items=log_items))
    differences = paired_differences(results, seed=seed)
    if json:
        print_json(
            {
                "results": [result_to_dict(found, items=False) for found in results],
                "differences": differences,
                "files": [str(path) for path in paths],
            }
        )
    else:
        names = list(dict.fromkeys(score.name for found in results for score in found.scores))
        for columns in _tables(names):
            print_scores(results, columns)
        print_calibration(results)
        print_differences(differences)
    finish(results, paths, json, quiet)


def _tables(names: list[str]) -> list[list[str]]:
    """Columns of each table: directions of retrieval apart, own clips only apart from shared."""
    kinds = ("t2a_own_", "a2t_own_", "t2a_", "a2t_", "")
    kind = {name: next(k for k in kinds if name.startswith(k)) for name in names}
    order = [k for k in ("t2a_", "t2a_own_", "a2t_", "a2t_own_", "") if k in kind.values()]
    return [[name for name in names if kind[name] == k] for k in order]


def print_calibration(results: list[Result]) -> None:
    """What of a calibration error noise alone would give; nothing for other tasks."""
    for found in results:
        if (of := found.details.get("calibration")) is not None:
            say(
                f"ECE of {found.model} on {found.dataset}: {of['error']:.3f}; a calibrated model "
                f"with these confidences reads {of['null']:.3f} (95% below {of['null_high']:.3f}, "
                f"p = {of['p']:.3f}); {of['debiased']:.3f} without that noise"
            )


def print_differences(differences: list[ModelDifference]) -> None:
    """Paired, against the first model; nothing with one model."""
    if not differences:
        return
    print_table(
        ["model", "against", "data", "score", "difference", "p", "q"],
        [
            [
                row.model,
                row.against,
                row.dataset,
                row.score,
                shown(row.value, row.low, row.high),
                f"{row.p:.3f}",
                f"{row.q:.3f}",
            ]
            for row in differences
        ],
        "Paired differences, 95% intervals by group; q: false discovery rate over the rows",
    )
