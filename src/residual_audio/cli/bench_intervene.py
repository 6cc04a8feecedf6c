"""`residual-audio bench intervene`: how much time the algebra of interventions saves."""

from __future__ import annotations

from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table


def run(
    n_clips: Annotated[int, typer.Option("--clips", min=2, help="Clips, the same for all.")] = 8,
    model: options.Model = "htsat-tiny-random",
    naive_heads: Annotated[
        int, typer.Option("--naive-heads", min=1, help="Heads that the naive way is timed on.")
    ] = 12,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Ratios of naive to ours, same run, same clips; the naive way is timed on a sample of heads.

    exact_ratio: all-head ablation by full forwards / from saved states.
    first_order_ratio: the same / one backward pass, with its rank correlation to exact.
    direct_epoch_ratio: a training epoch inside the network / on the direct path.
    cached_epoch_ratio: a stage-3 epoch from the features / from saved states.
    """
    from residual_audio.benchmarks.intervene import bench_intervene

    found = bench_intervene(model, n_clips, naive_heads, seed)
    if json:
        print_json(found)
        return
    rows = [[k, f"{v:.4g}" if isinstance(v, float) else v] for k, v in found.items()]
    print_table(["", ""], rows)
