"""`residual-audio compa`: does each caption go with its own sound when the words are the same?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import inputs, options
from residual_audio.cli.output import print_json, print_table
from residual_audio.cli.scores import finish, print_scores, shown
from residual_audio.cli.terminal import watching


def run(
    model: options.Models = ["nano"],  # noqa: B006, typer copies it
    dataset: options.Datasets = None,
    root: options.Roots = None,
    gains: options.Gains = None,
    kind: Annotated[
        str,
        typer.Option("--kind", help="synthetic: order or attribute, or both as order,attribute."),
    ] = "order,attribute",
    items: Annotated[int, typer.Option("--items", min=1, help="synthetic: items to make.")] = 200,
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
    """F, G and H of MODELS on compa-order, compa-attribute or synthetic pairs, beside chance.

    F: every sound prefers its own caption. G: every caption prefers its own sound. H: both.
    Chance is 1/4, 1/4 and 1/6 where similarities are independent; those of close pairs are not,
    and a model that tells nothing apart is right throughout as often as wrong throughout: both are
    printed, with a sign test. The one-sided variants look at the first caption and sound only.
    """
    from residual_audio.errors import InputError
    from residual_audio.results import result_to_dict, write_result
    from residual_audio.surface.measured import evaluate, paired_differences

    sets = []
    if root and not dataset:
        raise InputError("--root needs to know what lies there: -d compa-order or compa-attribute")
    dataset = dataset or ["synthetic"]
    own = [option.partition("=")[0].replace("-", "_") for option in data_option or []]
    for name in dataset:
        if name != "synthetic":
            continue
        for one in kind.split(",") if "kind" not in own else [""]:
            given = list(data_option or [])
            given += [f"kind={one.strip()}"] if one else []
            if "n_clips" not in own:
                sides = 3 if "triplets=true" in given else 2
                given.append(f"n_clips={sides * items}")
            sets += inputs.load_datasets(["synthetic"], None, given)
    real = [name for name in dataset if name != "synthetic"]
    if real:
        sets += inputs.load_datasets(real, root, data_option)
    found_gains = inputs.read_gains(gains)
    results, paths = [], []
    for loaded in inputs.load_models(model, device):
        for data in sets:
            with watching(quiet or json) as progress, inputs.noting():
                found = evaluate(
                    loaded,
                    data,
                    task="compa",
                    gains=found_gains,
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
        from residual_audio.cli.evaluate import print_differences

        names = dict.fromkeys(score.name for found in results for score in found.scores)
        print_scores(results, [n for n in names if not n.endswith("_one_sided")])
        print_scores(results, [n for n in names if n.endswith("_one_sided")])
        print_table(
            ["model", "data", "score", "right", "wrong throughout", "as a share", "sign test p"],
            [
                [
                    found.model,
                    f"{found.dataset} ({found.split})",
                    name.upper(),
                    str(test["right"]),
                    str(test["wrong_throughout"]),
                    shown(found.details[f"{name}_swap"]),
                    shown(test["p"]),
                ]
                for found in results
                for name, test in found.details["sign_test"].items()
            ],
            "Captions exchanged: what close pairs score with nothing told apart",
        )
        print_table(
            ["model", "data", "fail by text", "by audio", "by alignment", "text sep.", "audio sep.",
             "alignment"],
            [
                [
                    found.model,
                    f"{found.dataset} ({found.split})",
                    *(f"{failures['share'][side]:.0%}" for side in ("text", "audio", "alignment")),
                    *(
                        shown(failures[f"median_{name}"])
                        for name in ("text_separation", "audio_separation", "alignment")
                    ),
                ]
                for found in results
                for failures in [found.details["failures"]]
            ],
            "Why items fail; medians of the distance within a pair (1 = that between items)",
        )  # fmt: skip
        print_differences(differences)
    finish(results, paths, json, quiet)
