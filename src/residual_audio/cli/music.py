"""`residual-audio music`: symbolic descriptors, CLAP score, and all measures in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.groups import DefaultGroup
from residual_audio.cli.output import print_json, print_table
from residual_audio.cli.scores import finish, print_scores, shown
from residual_audio.cli.terminal import watching


class _MusicGroup(DefaultGroup):
    default = "symbolic"


app = typer.Typer(
    cls=_MusicGroup,
    no_args_is_help=True,
    help="Generated music: `music REF GEN` (MIDI folders), `music clap-score`, `music report`.",
)


@app.command("symbolic")
def symbolic(
    reference: Annotated[Path, typer.Argument(help="Folder of MIDI files to compare with.")],
    generated: Annotated[Path, typer.Argument(help="Folder of generated MIDI files.")],
    smoothing: Annotated[
        float, typer.Option("--smoothing", min=0, help="Added to each bin before a KL divergence.")
    ] = 1e-3,
    segment_beats: Annotated[
        float, typer.Option("--segment-beats", min=0.25, help="Length of a segment (structure).")
    ] = 4.0,
    seed: options.Seed = 0,
    resamples: options.Resamples = 1000,
    log_items: Annotated[
        bool, typer.Option("--log-items", help="Also write every file's descriptors, as parquet.")
    ] = False,
    out: options.ResultsOut = Path("results"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Pitch, rhythm, tonality and structure of GENERATED against REFERENCE, with intervals."""
    from residual_audio.generation.midi import read_folder
    from residual_audio.generation.pieces import compare_pieces
    from residual_audio.results import result_to_dict, write_result

    left, right = read_folder(reference), read_folder(generated)
    found = compare_pieces(
        left,
        right,
        smoothing=smoothing,
        segment_beats=segment_beats,
        seed=seed,
        n_resamples=resamples,
    )
    path = write_result(found, out, items=log_items)
    if json:
        print_json(result_to_dict(found, items=False))
    else:
        of = {score.name: score for score in found.scores}
        print_table(
            ["between the folders", "value"],
            [
                [name, shown(s.value, s.low, s.high)]
                for name, s in of.items()
                if not name.endswith("_difference")
            ],
        )
        rows = []
        for row in found.details["descriptors"]:
            difference = of[f"{row['descriptor']}_difference"]
            sides = [row["reference"], row["generated"]]
            rows.append(
                [
                    row["descriptor"],
                    *(shown(s["mean"], s["low"], s["high"]) for s in sides),
                    shown(difference.value, difference.low, difference.high),
                ]
            )
        print_table(["descriptor", "reference", "generated", "difference"], rows)
    finish([found], [path], json, quiet)


@app.command("clap-score")
def clap_score(
    folder: Annotated[Path, typer.Argument(help="Folder of generated audio.")],
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="CSV, JSON or JSONL of file and prompt; else .txt files."),
    ] = None,
    model: options.Model = "nano",
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    seed: options.Seed = 0,
    no_cache: options.NoCache = False,
    log_items: Annotated[
        bool, typer.Option("--log-items", help="Also write the score of every file, as parquet.")
    ] = False,
    out: options.ResultsOut = Path("results"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Cosine of every prompt with its generated file, beside that of wrong prompts."""
    from residual_audio.embeddings.embedder import EmbeddingSettings
    from residual_audio.generation import clap_score as scores
    from residual_audio.generation.prompted_files import read_prompts
    from residual_audio.models.registry import load_model
    from residual_audio.results import result_to_dict, write_result

    items = read_prompts(prompts or folder, folder)
    loaded = load_model(model, device)
    with watching(quiet or json) as progress:
        found = scores.clap_score(
            loaded,
            items,
            name=folder.name,
            root=folder,
            seed=seed,
            embedding=EmbeddingSettings(batch_size=batch_size, cache=not no_cache),
            progress=progress,
        )
    path = write_result(found, out, items=log_items)
    if json:
        print_json(result_to_dict(found, items=False))
    else:
        print_scores([found])
    finish([found], [path], json, quiet)


@app.command("report")
def report(
    study: Annotated[Path, typer.Argument(help="JSON that names reference, systems and ratings.")],
    model: options.Model = "nano",
    scale: Annotated[
        str | None, typer.Option("--scale", help="Ends of the rating scale, e.g. 0,100.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="Stimulus that is the hidden reference.")
    ] = None,
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    seed: options.Seed = 0,
    no_cache: options.NoCache = False,
    out: options.ResultsOut = Path("results"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Distribution, CLAP, symbolic and listening measures of the same systems in one table."""
    from residual_audio.cli.mushra import parse_scale
    from residual_audio.embeddings.embedder import EmbeddingSettings
    from residual_audio.files import json_ready, write_json
    from residual_audio.generation.music_report import COLUMNS, run_study
    from residual_audio.generation.music_study import read_music_study
    from residual_audio.results import slug, write_result

    asked = read_music_study(study)
    loaded = None
    if asked.needs_model:
        from residual_audio.models.registry import load_model

        loaded = load_model(model, device)
    with watching(quiet or json) as progress:
        found = run_study(
            asked,
            loaded,
            scale=parse_scale(scale),
            reference_stimulus=reference,
            seed=seed,
            embedding=EmbeddingSettings(batch_size=batch_size, cache=not no_cache),
            progress=progress,
        )
    for result in found.results:
        write_result(result, out)
    document = {
        "systems": list(found.systems),
        "measures": {
            measure: {
                system: {"value": s.value, "low": s.low, "high": s.high, "n": s.n}
                for system, s in row.items()
            }
            for measure, row in found.measures.items()
        },
        "correlations": list(found.correlations),
        "warnings": list(found.warnings),
    }
    path = out / f"music-report_{slug(study.stem)}.json"
    write_json(path, document)
    if json:
        print_json(json_ready(document))
    else:
        listed = [n for n in (*COLUMNS, "listeners") if n in found.measures]
        print_table(
            ["system", *listed],
            [
                [
                    system,
                    *(
                        shown(s.value, s.low, s.high)
                        if (s := found.measures[name].get(system))
                        else "–"
                        for name in listed
                    ),
                ]
                for system in found.systems
            ],
        )
        if found.correlations:
            print_table(
                ["measure", "agreement with listeners (Spearman)", "p perm.", "q", "systems"],
                [
                    [
                        row.measure,
                        shown(row.agreement),
                        shown(row.p_permutation),
                        shown(row.q),
                        row.n_systems,
                    ]
                    for row in found.correlations
                ],
            )
        for warning in found.warnings:
            typer.echo(f"note: {warning}", err=True)
    finish(found.results, [path], json, quiet)
