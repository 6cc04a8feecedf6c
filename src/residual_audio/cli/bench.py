"""`residual-audio bench`: speed against the peer, memory and resilience, each in one run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.bench_faults import faults
from residual_audio.cli.groups import Group
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.terminal import watching

app = typer.Typer(
    cls=Group,
    help="Measure speed against the peer, cost of capture, memory and resilience.",
    no_args_is_help=True,
)


@app.callback()
def begin(context: typer.Context) -> None:
    from residual_audio.benchmarks.machine import Company, UnderWay

    UnderWay.bench, UnderWay.since = str(context.invoked_subcommand), Company.now()


@app.command("encode")
def encode(
    n_clips: Annotated[int, typer.Option("--clips", min=1, help="10 s clips to encode.")] = 24,
    batch_size: options.BatchSize = 8,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Best of so many.")] = 7,
    precision: Annotated[
        Literal["float32", "bf16"], typer.Option("--precision", help="Of our products.")
    ] = "float32",
    json: options.Json = False,
) -> None:
    """Decode → front-end → encoder at the real tiny size on CPU: ours with 184 heads, and HF's.

    With --precision bf16 also what that costs: at this size, and for the bundled model in use.
    """
    from residual_audio.benchmarks.encode_speed import bench_encode

    with watching(json) as progress:
        found = bench_encode(n_clips, batch_size, repeats, progress, precision)
    _show(found, json)


@app.command("analyse")
@app.command("analyze", hidden=True)
def analyse(
    n_clips: Annotated[int, typer.Option("--clips", min=50, help="Clips a head.")] = 2000,
    peer_heads: Annotated[
        int, typer.Option("--peer-heads", min=1, help="Heads of each stage the peer is timed on.")
    ] = 3,
    growth: Annotated[
        bool, typer.Option("--growth/--no-growth", help="Also 1,000 to 20,000 clips.")
    ] = True,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """184 heads, raw and projected: all of our estimates against PCA + TwoNN + MLE per head.

    The peer is timed on a few heads of each stage and scaled to all of them.
    """
    from residual_audio.benchmarks.analyse_speed import bench_analyse, bench_growth

    sizes = (1000, 2000, 5000, 10_000, 20_000)
    with watching(json) as progress:
        found = bench_analyse(n_clips, peer_heads, seed, progress)
        grown = bench_growth(sizes, seed, progress=progress) if growth else []
    if json:
        _print_measured({**found, "growth": grown} if growth else found)
        return
    what = f"{found['n_heads']} heads × {n_clips} clips, raw + projected"
    rows = [
        [f"ours, {what}, {found['cores']} cores", f"{found['ours_s']:.2f}"],
        [f"peer, scaled from {found['peer_heads']} heads", f"{found['peer_s']:.2f}"],
        ["ratio", f"{found['ratio']:.1f}"],
        ["largest relative difference of an estimate", f"{found['largest_difference']:.1e}"],
    ]
    print_table(["", "seconds"], rows)
    if growth:
        print_table(
            ["clips", "seconds", "peak MB", "of it input"],
            [
                [
                    f"{row['n_clips']:,}",
                    f"{row['seconds']:.2f}",
                    f"{row['peak_mb']:.2f}",
                    f"{row['input_mb']:.2f}",
                ]
                for row in grown
            ],
            title="184 heads, raw + projected (seconds scaled from 4 heads)",
        )


@app.command("intervene")
def intervene(
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
    patching_exact_ratio, patching_attribution_ratio: all heads exchanged between two clips, both
    ways, by full forwards / from saved states, and / one backward pass.
    direct_epoch_ratio: a training epoch inside the network / on the direct path.
    cached_epoch_ratio: a stage-3 epoch from the features / from saved states.
    """
    from residual_audio.benchmarks.intervene_speed import bench_intervene

    with watching(json) as progress:
        found = bench_intervene(model, n_clips, naive_heads, seed, progress)
    _show(found, json)


@app.command("capture")
def capture(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Median of so many.")] = 12,
    threads: Annotated[int, typer.Option("--threads", min=1, help="CPU threads.")] = 1,
    kind: Annotated[
        list[str] | None,
        typer.Option("--capture", help="Kinds captured together, a,b,c; repeatable."),
    ] = None,
    json: options.Json = False,
) -> None:
    """What capturing adds to the forward pass, as a share of it, kind by kind."""
    from residual_audio.benchmarks.capture_speed import KINDS, bench_capture

    with watching(json) as progress:
        found = bench_capture(rounds, threads, kind or KINDS, progress)
    if json:
        _print_measured(found)
        return
    rows = [[name, f"{share:+.1%}"] for name, share in found["cost"].items()]
    title = f"over a plain pass of {found['forward_s_per_clip']:.4f} s a clip"
    print_table(["captured", "cost"], rows, title)


@app.command("onnx")
def onnx(
    model: options.Model = "nano",
    batch_size: options.BatchSize = 8,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Best of so many.")] = 7,
    json: options.Json = False,
) -> None:
    """The audio tower in onnxruntime against our own pass, from ready log-mels on, on CPU."""
    from residual_audio.benchmarks.onnx_speed import bench_onnx

    with watching(json) as progress:
        found = bench_onnx(model, batch_size, repeats, progress)
    _show(found, json)


@app.command("atlas")
def atlas(
    run: Annotated[Path, typer.Argument(help="Run folder with an atlas.")],
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Best of so many.")] = 5,
    clips: Annotated[
        int | None,
        typer.Option("--clips", min=50, help="Make RUN first: so many, random weights."),
    ] = None,
    json: options.Json = False,
) -> None:
    """How quick RUN's atlas is in Chromium: opening it, a head's page, a step of a slider."""
    from residual_audio.benchmarks.browser import bench_atlas
    from residual_audio.benchmarks.large_run import make_large_run

    with watching(json) as progress:
        if clips is not None:
            make_large_run(run, clips, progress)
        found = bench_atlas(run, repeats, progress)
    _show(found, json)


@app.command("kill")
def kill(
    kills: Annotated[int, typer.Option("--kills", min=1, help="How often to kill it.")] = 30,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Kill an extraction at random moments; exit 1 if its store differs from an undisturbed one."""
    from dataclasses import asdict

    from residual_audio.benchmarks.kill import bench_kill

    with watching(json) as progress:
        found = bench_kill(kills, seed, progress)
    _show(asdict(found), json)
    if not found.whole:
        raise typer.Exit(1)


app.command("faults")(faults)


@app.command("leaks")
def leaks(
    embeddings: Annotated[int, typer.Option("--embeddings", min=2, help="How many calls.")] = 1000,
    json: options.Json = False,
) -> None:
    """Handles, threads and memory that embeddings leave in a process; exit 1 where any stay."""
    from residual_audio.benchmarks.faults.same_answer import MOST_LEFT_MB, bench_leaks

    with watching(json) as progress:
        found = bench_leaks(embeddings, progress)
    _show(found, json)
    if found["descriptors"] or found["threads"] or found["memory_mb"] > MOST_LEFT_MB:
        raise typer.Exit(1)


@app.command("memory")
def memory(
    clips: Annotated[
        str, typer.Option("--clips", help="Sizes to extract, e.g. 100,1000.")
    ] = "100,1000,10000",
    capture: Annotated[
        str, typer.Option("--capture", help="Kinds to capture.")
    ] = "heads,direct,moments",
    json: options.Json = False,
) -> None:
    """Peak memory of an extraction against the number of clips; exit 1 where it is not flat."""
    from residual_audio.benchmarks.memory import FLAT, bench_memory, growth

    with watching(json) as progress:
        runs = bench_memory([int(n) for n in clips.split(",")], capture, progress)
    if json:
        print_json({"runs": runs, "growth": round(growth(runs), 3)})
    else:
        columns = ["clips", "peak_mb", "store_mb", "clips_per_s"]
        cells = [[f"{row[c]:,}" for c in columns] for row in runs]  # type: ignore[literal-required]
        print_table(columns, cells, f"largest over smallest: {growth(runs):.3f}")
    if growth(runs) >= FLAT:
        raise typer.Exit(1)


@app.command("growth")
def growth(
    clips: Annotated[
        str, typer.Option("--clips", help="Clips in tar shards, from few to many.")
    ] = "1000,10000,100000",
    index: Annotated[
        int, typer.Option("--index", min=1, help="Clips of the index that is written and read.")
    ] = 1_000_000,
    store: Annotated[
        int, typer.Option("--store", min=100, help="Clips of the store that is analysed.")
    ] = 1_000_000,
    part: Annotated[
        str, typer.Option("--part", help="tars, index, store; a,b or all, run in pieces.")
    ] = "tars,index",
    ray: Annotated[bool, typer.Option("--ray", help="Also one and two Ray workers.")] = False,
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", help="Ray cluster; none: one on this machine.")
    ] = None,
    json: options.Json = False,
) -> None:
    """More and more tar clips, a very small encoder: memory flat, time linear; exit 1 if not.

    Time is that of the processor, which a busy machine does not change much. The part `store`
    writes a store of 184 heads a clip (13 GB a million) and verifies and analyses it.
    """
    from residual_audio.benchmarks.tar_growth import PARTS, GrowthSettings, bench_growth

    parts = PARTS if part == "all" else tuple(part.split(","))
    sizes = [int(n) for n in clips.split(",")]
    with watching(json) as progress:
        found = bench_growth(GrowthSettings(sizes, index, store, parts, ray, ray_address), progress)
    if json:
        _print_measured(found)
    else:
        if "runs" in found:
            rows = [[f"{v:,}" for v in run.values()] for run in found["runs"]]
            print_table(list(found["runs"][0]), rows)
        rest = {name: value for name, value in found.items() if name != "runs"}
        print_table(["", ""], [[name, str(value)] for name, value in rest.items()])
    if not found.get("flat", True):
        raise typer.Exit(1)


@app.command("run")
def run(
    n_clips: Annotated[int, typer.Option("--clips", min=82, help="Synthetic clips of 10 s.")] = 500,
    model: options.Model = "htsat-tiny-random",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run folder to keep: a stopped bench goes on there."),
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """`residual-audio run` by step; exit 1 if a step takes longer than the encoder.

    Processor time decides, which a busy machine does not change much.
    """
    import tempfile

    from residual_audio.benchmarks.run_speed import bench_run

    with tempfile.TemporaryDirectory() as folder, watching(json) as progress:
        found = bench_run(model, n_clips, out or Path(folder), seed, progress)
    if json:
        _print_measured(found)
    else:
        times = found["steps"].items()
        rows = [[name, f"{t['seconds']:.1f}", f"{t['cpu_s']:.1f}"] for name, t in times]
        ratio = found["slowest_over_encoder"]
        title = f"{found['slowest']} takes {ratio:.2f} of the encoder's time"
        print_table(["step", "seconds", "processor seconds"], rows, title)
    if not found["encoder_leads"]:
        raise typer.Exit(1)


@app.command("demo")
def demo(
    n_clips: Annotated[int, typer.Option("--clips", min=82, help="Synthetic clips.")] = 205,
    json: options.Json = False,
) -> None:
    """`residual-audio demo` in a process of its own: seconds from call to end, and by step."""
    from residual_audio.benchmarks.demo_speed import bench_demo

    with watching(json) as progress:
        found = bench_demo(n_clips, progress)
    _show(found, json)


@app.command("page")
def page(
    folder: Annotated[Path, typer.Argument(help="Folder of files that `bench … --json` printed.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Markdown file to write.")],
) -> None:
    """A page of all measured ratios, with machine, date and load."""
    from residual_audio.benchmarks.speed_page import speed_page
    from residual_audio.files import write_bytes

    write_bytes(out, speed_page(folder).encode())
    say(f"wrote {out}")


def _print_measured(found: Mapping[str, object]) -> None:
    """What was found, with the bench, its command, the machine and who else was on it."""
    from residual_audio.benchmarks.machine import UnderWay, machine

    bench = f"{UnderWay.bench} {found.get('precision', '')}".strip()
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    print_json({**found, "bench": bench, "command": command, "machine": machine(UnderWay.since)})


def _show(found: Mapping[str, object], json: bool) -> None:
    if json:
        _print_measured(found)
        return
    cells = [[k, f"{v:.4g}" if isinstance(v, float) else v] for k, v in found.items()]
    print_table(["", ""], cells)
