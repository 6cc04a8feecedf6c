"""`residual-audio report`: draw the figures and the page of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, say
from residual_audio.cli.terminal import watching


def run(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    figures: Annotated[bool, typer.Option(help="Draw the figures again, too.")] = True,
    json: options.Json = False,
) -> None:
    """Draw RUN's figures and its page, report.html, from its tables: no model, no sounds needed."""
    from residual_audio.errors import InputError
    from residual_audio.report.figures import draw_all
    from residual_audio.report.figures_training import training_table
    from residual_audio.report.page import write_page
    from residual_audio.report.table_files import write_csv
    from residual_audio.seals import seal_files

    if not run.is_dir():
        raise InputError(f"'{run}' is not a run folder: see `residual-audio run`")
    tracked = training_table(run)
    if tracked is not None:
        seal_files([write_csv(run / "tables" / "training.csv", tracked)])
    with watching(json) as progress:
        progress.keeps("the figures drawn so far are kept; the same command draws all again")
        drawn = draw_all(run, progress=progress) if figures else []
        progress.step("writing the page")
        page = write_page(run)
    if json:
        print_json({"page": str(page), "figures": [str(path) for path in drawn]})
    else:
        n_figures = len({path.stem for path in drawn})  # each as PNG and PDF
        say(f"{n_figures} figures and {page}")
