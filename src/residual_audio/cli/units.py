"""`residual-audio units`: what of a model can be tapped, taken out or reweighted, by name."""

from __future__ import annotations

from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table


def run(
    model: Annotated[str, typer.Argument(help="A model name (see `models`).")] = "nano",
    pattern: Annotated[
        str, typer.Argument(help="Units by name, with *: s2.b5.h11, s3.*.h0, s2.*.attention, s1.")
    ] = "s*.*.h*",
    json: options.Json = False,
) -> None:
    """Print the units of MODEL that match PATTERN, in order of computation."""
    from residual_audio.models.registry import load_model
    from residual_audio.types import parse_units

    units = parse_units(pattern, load_model(model, "cpu").encoder.sites)
    rows = [[unit.name, unit.kind, unit.stage, unit.block, unit.width] for unit in units]
    columns = ["unit", "kind", "stage", "block", "width"]
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    print_table(columns, rows, f"{len(rows)} units of {model}")
