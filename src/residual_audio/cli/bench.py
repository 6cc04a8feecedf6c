"""`residual-audio bench`: speed against the peer, side by side in one run."""

from __future__ import annotations

import typer

from residual_audio.cli import bench_analyse, bench_encode, bench_intervene

app = typer.Typer(help="Measure speed against the peer, in one run.", no_args_is_help=True)
app.command("encode")(bench_encode.run)
app.command("analyse")(bench_analyse.run)
app.command("analyze", hidden=True)(bench_analyse.run)
app.command("intervene")(bench_intervene.run)
