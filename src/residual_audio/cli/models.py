"""`residual-audio models`: what can be loaded, whether it is healthy, and conversion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.groups import Group
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.terminal import watching

app = typer.Typer(
    cls=Group,
    help="List the kinds of model; show, check or convert a checkpoint.",
    no_args_is_help=False,
)


@app.callback(invoke_without_command=True)
def list_models(context: typer.Context, json: options.Json = False) -> None:
    """List the kinds of model that `--model` takes."""
    if context.invoked_subcommand is not None:
        return
    from residual_audio.models.families import FAMILIES, NANO

    rows = [
        {
            "name": "nano",
            "what": "the bundled model: works offline, at once"
            + ("" if (NANO / "config.json").is_file() else " (not in this build)"),
            "ready": (NANO / "config.json").is_file(),
        }
    ]
    for family in FAMILIES.values():
        name = f"{family.prefix}:<{family.reference}>"
        rows.append({"name": name, "what": family.title, "ready": True})
    rows.append({"name": "<folder>", "what": "a folder written by `models convert`", "ready": True})
    if json:
        print_json(rows)
    else:
        print_table(["name", "what it is"], [[r["name"], r["what"]] for r in rows])


@app.command("show")
def show(model: str, json: options.Json = False) -> None:
    """Load MODEL, prove it and print its size, sites, front-end and sha256."""
    from residual_audio.models.registry import load_model

    loaded = load_model(model, device="cpu")
    sites = loaded.encoder.sites
    facts = {
        "name": loaded.name,
        "family": loaded.family,
        "sha256": loaded.sha256,
        "parameters": sum(p.numel() for p in loaded.parameters()),
        "heads": sum(site.n_heads for site in sites),
        "blocks": sum(site.kind == "attention" for site in sites),
        "joint_dim": loaded.joint_dim,
        "text": loaded.text is not None,
        "logit_scale": loaded.logit_scale,
        "trained_on": [str(part) for part in loaded.trained_on]
        if loaded.trained_on is not None
        else None,
        "front_end": loaded.spec.to_dict(),
        "sites": [str(site) for site in sites],
    }
    if json:
        print_json(facts)
        return
    front_end = loaded.spec
    facts["front_end"] = (
        f"{front_end.sample_rate_hz} Hz, {front_end.duration_s:g} s, {front_end.n_mels} mels"
    )
    known = loaded.trained_on is not None
    facts["trained_on"] = "; ".join(map(str, loaded.trained_on or ())) or (
        "nothing: random weights" if known else "not known"
    )
    facts["logit_scale"] = f"{loaded.logit_scale:.4g}"
    facts["sites"] = f"{sites[0]} … {sites[-1]}"
    print_table(["", ""], [[key, str(value)] for key, value in facts.items()])


@app.command("check")
def check(
    model: str,
    sounds: Annotated[
        bool, typer.Option("--sounds", help="Also whether it tells synthetic sounds apart.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Is MODEL what it says, and healthy? Exit code 1 where it is not."""
    from dataclasses import asdict

    from residual_audio.cli.output import show_table
    from residual_audio.models.registry import load_model
    from residual_audio.surface.measured import check_model

    with watching(quiet or json) as progress:
        found = check_model(load_model(model), sounds=sounds, progress=progress)
    if json:
        rows = [asdict(finding) for finding in found.findings]
        print_json({"model": found.model, "healthy": found.healthy, "findings": rows})
    else:
        show_table(found.table(), ["check", "value", "wanted", "verdict"])
        typer.echo(found.verdict)
    if not found.healthy:
        raise typer.Exit(1)


@app.command("convert")
def convert(
    model: str,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder (or file for laion) to write.")],
    to: Annotated[str, typer.Option("--to", help="native, hf or laion.")] = "native",
) -> None:
    """Write MODEL as a safetensors folder that loads without any pickle, with its card."""
    from residual_audio.models.conversion import convert_model
    from residual_audio.models.registry import load_model

    loaded = load_model(model, device="cpu")
    convert_model(loaded, out, to)
    reopen = {"native": str(out), "hf": f"hf:{out}", "laion": f"laion:{out}"}[to]
    say(f"wrote {out}; load it with --model {reopen}")
