"""`residual-audio bench faults`: what is promised, tried at length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.terminal import watching


def faults(
    campaign: Annotated[
        list[str] | None,
        typer.Option("--campaign", help="crash, crash:run, damage, kill, sound …; else all."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few of each, in minutes.")] = False,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="Folder for outcomes: stopped, the same command goes on."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="Markdown page with a table of what is kept.")
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Crashes, kills, damage, limits, hostile files and names: tried and held; exit 1 if not all.

    --campaign takes one of them, --keep goes on where it was stopped, --page writes the table.
    """
    from residual_audio.benchmarks.faults.campaign_page import write_campaigns
    from residual_audio.benchmarks.faults.campaigns import run_campaigns
    from residual_audio.benchmarks.faults.outcome import CampaignSettings

    with watching(json) as progress:
        found = run_campaigns(campaign or (), CampaignSettings(quick, seed, keep, progress))
    if json:
        print_json([one.record() for one in found])
    else:
        print_table(["campaign", "tried", "held"], [[c.name, c.tried, c.held] for c in found])
        for one in found:
            for problem in one.broken:
                say(f"{one.name}: {problem}", err=True)
    if page is not None and keep is not None:
        write_campaigns(keep, page)
    if any(one.held < one.tried for one in found):
        raise typer.Exit(1)
