"""`residual-audio datasets`: what there is, what to download where, and whether it is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from residual_audio.cli import options
from residual_audio.cli.groups import Group
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.terminal import watching

app = typer.Typer(cls=Group, help="List data sets, check one on disk, write out synthetic sounds.")

SHOWN = 20  # problems listed on a terminal; --json has them all


@app.callback(invoke_without_command=True)
def list_datasets(context: typer.Context, json: options.Json = False) -> None:
    """List the data sets and say what to download where."""
    if context.invoked_subcommand is not None:
        return
    from dataclasses import asdict

    from residual_audio.data.registry import dataset_card, dataset_names

    cards = [dataset_card(name) for name in dataset_names()]
    if json:
        print_json([asdict(card) for card in cards])
        return
    print_table(
        ["name", "what for", "clips", "classes", "licence"],
        [
            [
                card.name,
                card.task,
                f"{card.n_clips:,}" if card.n_clips else "–" if card.url else "any number",
                card.n_classes or "–",
                card.licence,
            ]
            for card in cards
        ],
    )
    # outside the table, so that no address is cut
    for card in cards:
        say(f"{card.name}: {' '.join(filter(None, [card.download, card.url]))}")
    typer.echo("\n`residual-audio datasets show NAME` prints the layout, options and citation.")


@app.command("show")
def show(name: str, json: options.Json = False) -> None:
    """Print everything about one data set: layout, groups, options, citation."""
    from dataclasses import asdict

    from residual_audio.data.registry import dataset_card

    card = asdict(dataset_card(name))
    if json:
        print_json(card)
        return
    for key in ("counts", "options"):
        card[key] = "\n".join(f"{item}: {value}" for item, value in card[key].items())
    print_table(["", ""], [[key, value] for key, value in card.items() if value])


@app.command("check")
def check(
    name: str,
    root: options.Root = None,
    decode: Annotated[
        bool, typer.Option("--decode", help="Also decode every file (slow, finds damaged ones).")
    ] = False,
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="manifest: accept paths that leave the root.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Verify counts and files of NAME against its release and list what is missing.

    Exit code 0: complete; 3: usable, but something is missing; 1: not the layout of the release.
    """
    from residual_audio.data.check import check_dataset
    from residual_audio.data.registry import load_dataset

    extra: dict[str, Any] = {"allow_outside": True} if allow_outside else {}
    dataset = load_dataset(name, root, **extra)
    with watching(quiet or json) as progress:
        report = check_dataset(dataset, decode, progress)
    if json:
        print_json(report.to_json())
    else:
        _print_report(report.to_json())
    if not report.complete:
        raise typer.Exit(3)


def _print_report(report: dict[str, Any]) -> None:
    of = f" of {report['n_expected']:,} in the release" if report["n_expected"] else ""
    rows = [
        ["clips", f"{report['n_clips']:,}{of}"],
        ["usable", f"{report['n_usable']:,}"],
        ["classes", report["n_classes"]],
        ["groups", f"{report['n_groups']:,}"],
    ]
    if report["n_torn_groups"]:
        rows.append(["groups torn by the official folds", report["n_torn_groups"]])
    for count in report["counts"]:
        name = f"fold {count['name']}" if count["name"].isdigit() else count["name"]
        rows.append([name, f"{count['found']:,} of {count['expected']:,} in the release"])
    print_table(["", ""], rows, title=f"{report['name']} in {report['root']}")
    for title, found in (("problem", report["problems"]), ("not used", report["ignored"])):
        for item, why in list(found.items())[:SHOWN]:
            say(f"{title}: {item}: {why}")
        if len(found) > SHOWN:
            say(f"… and {len(found) - SHOWN:,} more (--json lists all)")
    typer.echo("complete" if report["complete"] else "not complete")


@app.command("make")
def make(
    name: Annotated[str, typer.Argument(help="synthetic")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Empty or new folder to write to.")],
    n: Annotated[int, typer.Option("--n", min=1, help="How many clips.")] = 200,
    kind: Annotated[str, typer.Option("--kind", help="classes, order or attribute.")] = "classes",
    seed: options.Seed = 0,
    duration_s: Annotated[float, typer.Option("--duration-s", help="Seconds a clip.")] = 5.0,
    rate_hz: Annotated[
        int, typer.Option("--rate-hz", min=4000, max=192_000, help="Sample rate of the files.")
    ] = 32_000,
    triplets: Annotated[
        bool, typer.Option("--triplets", help="order: a third clip, both sounds at once.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write synthetic sounds as wav files with a manifest.csv, to listen to or to use elsewhere."""
    from residual_audio.data.dataset_writer import write_dataset
    from residual_audio.data.registry import load_dataset
    from residual_audio.errors import InputError

    if name != "synthetic":
        raise InputError(f"'{name}' cannot be made, only synthetic")
    dataset = load_dataset(
        name, n_clips=n, seed=seed, duration_s=duration_s, kind=kind, triplets=triplets
    )
    with watching(quiet or json) as progress:
        written = write_dataset(dataset, out, rate_hz, progress)
    if json:
        print_json({"out": str(out), "n_clips": written, "fingerprint": dataset.fingerprint()})
    elif not quiet:
        say(f"{written} clips and manifest.csv in {out}")
