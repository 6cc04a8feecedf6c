"""`residual-audio probe`: geometry of the joint space, and whether it goes with scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from residual_audio.cli import inputs, options
from residual_audio.cli.groups import DefaultGroup
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.scores import finish, shown
from residual_audio.cli.terminal import watching

if TYPE_CHECKING:
    from residual_audio.types import Result


class _ProbeGroup(DefaultGroup):
    default = "measure"


app = typer.Typer(
    cls=_ProbeGroup,
    no_args_is_help=True,
    help="Geometry of the joint space: `probe RUN|FILE…`, `probe --model M --dataset D`, "
    "`probe study`.",
)


@app.command("measure")
def measure(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, or .npz/.safetensors/.npy files with audio and text."),
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", help="File of the text side, one for each file of the audio side."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="Embed with this model; repeatable.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", "-d", help="Data set to embed; repeatable.")
    ] = None,
    root: options.Roots = None,
    gains: options.Gains = None,
    prompts: Annotated[
        list[str] | None, typer.Option("--prompts", help="Prompts where the text is classes.")
    ] = None,
    fold: options.Folds = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    data_option: options.DataOption = None,
    n: Annotated[
        int | None, typer.Option("--n", min=2, help="Rows a side; default: those of the smallest.")
    ] = None,
    halves: Annotated[
        int, typer.Option("--halves", min=0, help="Half-samples behind each interval.")
    ] = 50,
    long: options.Long = "first",
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    seed: options.Seed = 0,
    no_cache: options.NoCache = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the results; a run's go to its own by default."
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Probe SOURCES, or MODELS on DATASETS, all at the same number of rows.

    RankMe, effective rank, TwoNN, MLE, residual energy, modality gap, uniformity, alignment,
    hubness; intervals from half-samples of the groups.
    """
    from residual_audio.errors import InputError
    from residual_audio.results import result_to_dict, write_result
    from residual_audio.surface.probed import clouds_of, model_clouds, probe_matched

    files = list(sources or [])
    if text and len(text) != len(files):
        raise InputError(f"{len(files)} audio files and {len(text)} --text files do not pair up")
    if gains is not None and not (model or dataset or root):
        raise InputError("--gains act while a model embeds: give --model and --dataset with them")
    clouds = [clouds_of(one, text[i] if text else None) for i, one in enumerate(files)]
    if model or dataset or root:
        sets = inputs.load_datasets(dataset, root, data_option)
        found_gains = inputs.read_gains(gains)
        for loaded in inputs.load_models(model or ["nano"], device):
            for data in sets:
                with watching(quiet or json) as progress:
                    clouds.append(
                        model_clouds(
                            loaded,
                            data,
                            gains=found_gains,
                            prompts=prompts or ["dataset"],
                            folds=fold,
                            limit=limit,
                            sample=sample,
                            long=long,
                            batch_size=batch_size,
                            cache=not no_cache,
                            seed=seed,
                            progress=progress,
                        )
                    )
    if not clouds:
        raise InputError("nothing to probe: give a run, files of embeddings, or --model/--dataset")
    with watching(quiet or json) as progress:
        results = probe_matched(clouds, n=n, n_halves=halves, seed=seed, progress=progress)
    folders = [source / "results" if source.is_dir() else Path("results") for source in files]
    folders += [Path("results")] * (len(clouds) - len(files))
    paths = [
        write_result(found, out or folder) for found, folder in zip(results, folders, strict=True)
    ]
    if json:
        print_json(
            {
                "results": [result_to_dict(found, items=False) for found in results],
                "files": [str(path) for path in paths],
            }
        )
    else:
        _print_probes(results)
    finish(results, paths, json, quiet)


def _print_probes(results: list[Result]) -> None:
    names = list(dict.fromkeys(score.name for found in results for score in found.scores))
    scores = [{score.name: score for score in found.scores} for found in results]
    rows = [
        [
            name,
            *(shown(s.value, s.low, s.high) if (s := of.get(name)) else "–" for of in scores),
        ]
        for name in names
    ]
    heads = [f"{found.model} · {found.dataset}" for found in results]
    first = results[0].details
    print_table(
        ["probe", *heads],
        rows,
        f"{first['n_audio']} audio and {first['n_text']} text rows each",
    )
    for found in results:
        for name, reason in found.details["reasons"].items():
            say(f"{found.model}: {name}: {reason}", err=True)


@app.command("study")
def study(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(help="Result files or folders with results of probe and of scores."),
    ] = None,
    from_table: Annotated[
        Path | None,
        typer.Option("--from-table", help="CSV or JSON, one row a (model, benchmark) cell."),
    ] = None,
    score: Annotated[
        list[str] | None, typer.Option("--score", help="Only this score; may be repeated.")
    ] = None,
    probe: Annotated[
        list[str] | None, typer.Option("--probe", help="Only this probe; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the table and scatter plots.")
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Correlate every probe with every score over (model × benchmark) cells."""
    from residual_audio.surface.probe_study import study_probes

    studied = study_probes(sources or [], table=from_table, scores=score, probes=probe, seed=seed)
    if out is not None:
        studied.write(out)
    if json:
        print_json(studied.document())
        return
    columns = ["probe", "Spearman", "p", "p perm.", "q", "Pearson", "p", "within", "p within", "n"]
    for name, rows in studied.by_score.items():
        cells = [
            [
                row.probe,
                f"{row.spearman:+.3f}",
                f"{row.p_spearman:.3f}",
                f"{row.p_spearman_permutation:.3f}",
                f"{row.q:.3f}",
                f"{row.pearson:+.3f}",
                f"{row.p_pearson:.3f}",
                shown(row.pearson_within),
                shown(row.p_within),
                row.n,
            ]
            for row in rows
        ]
        print_table(columns, cells, f"{name} over {studied.found.n_cells} cells")
    for warning in studied.found.warnings:
        say(f"note: {warning}", err=True)
    if out is not None and not quiet:
        say(f"written: {out}")
