"""`residual-audio music`: symbolic descriptors, CLAP score, and all measures in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.groups import DefaultGroup
from residual_audio.cli.mushra import parse_scale
from residual_audio.cli.output import print_json, print_table, say
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
    from residual_audio.results import result_to_dict, write_result
    from residual_audio.surface.generated import compare_notes

    found = compare_notes(
        reference,
        generated,
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
    from residual_audio.results import result_to_dict, write_result
    from residual_audio.surface.generated import prompt_scores

    with watching(quiet or json) as progress:
        found = prompt_scores(
            model,
            folder,
            prompts,
            seed=seed,
            device=device,
            batch_size=batch_size,
            cache=not no_cache,
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
    from residual_audio.files import write_json
    from residual_audio.results import slug, write_result
    from residual_audio.surface.generated import COLUMNS, music_report

    with watching(quiet or json) as progress:
        found = music_report(
            study,
            model,
            scale=parse_scale(scale),
            reference=reference,
            seed=seed,
            device=device,
            batch_size=batch_size,
            cache=not no_cache,
            progress=progress,
        )
    for result in found.results:
        write_result(result, out)
    path = out / f"music-report_{slug(study.stem)}.json"
    write_json(path, found.document())
    if json:
        print_json(found.document())
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
            say(f"note: {warning}", err=True)
    finish(found.results, [path], json, quiet)
