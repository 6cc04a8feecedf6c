"""`residual-audio reweight`: fit gains, compare them with everything a sceptic would try."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.groups import Group
from residual_audio.cli.inputs import load_passes_of
from residual_audio.cli.output import print_json, print_table, show_table
from residual_audio.cli.terminal import watching

app = typer.Typer(
    cls=Group,
    help="ResiDual: reweight the principal components of heads, and judge it honestly.",
    no_args_is_help=True,
)

Stages = Annotated[
    str, typer.Option("--stages", help="Stages to reweight, e.g. 2,3 (default all).")
]
Components_ = Annotated[
    str,
    typer.Option("--components", help="all, coarse, a number (16) or a share of variance (0.9)."),
]


@app.command("compare")
def compare(
    run: options.Run,
    fold: options.Folds = None,
    folds: options.NFolds = 5,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repeat with so many seeds.")] = 1,
    shots: Annotated[
        str | None, typer.Option("--shots", help="Few-shot curves, e.g. 1,2,4,8,16.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="Only this method, by key (heads-23, rule-*); repeatable."),
    ] = None,
    network: Annotated[
        bool,
        typer.Option("--network", help="Also what runs the encoder: gains in it, LoRA, tuning."),
    ] = False,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="A class may be absent from a fold's training part."),
    ] = False,
    ensemble: Annotated[
        str | None,
        typer.Option("--ensemble", help="Named prompt ensemble to add (loads the text side)."),
    ] = None,
    model: options.ModelOfStore = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Every adaptation on the same grouped folds, in one table: RUN/tables/adapted.csv.

    A comparison of some methods or folds has tables of its own (RUN/tables/adapted_….csv) and
    leaves those of the whole as they are.
    """
    from residual_audio.adaptation.adapted import AdaptSettings, adapt
    from residual_audio.judge.of_store import rows_of
    from residual_audio.results import write_result
    from residual_audio.reweight.gain_files import save_gains
    from residual_audio.store import open_store

    store = open_store(run)
    with watching(quiet or json) as progress:
        passes = None
        if network:
            rows = rows_of(store, fold)
            passes = load_passes_of(store, rows, model, root, data_option, device, progress)
        settings = AdaptSettings(
            folds=tuple(fold or ()),
            n_folds=folds,
            seeds=tuple(range(seed, seed + seeds)),
            shots=tuple(int(n) for n in shots.split(",")) if shots else (),
            methods=tuple(method or ()),
            allow_missing=allow_missing,
        )
        found = adapt(
            store,
            settings,
            ensemble=_ensemble(store, ensemble, model, device) if ensemble else None,
            passes=passes,
            progress=progress,
        )
    from residual_audio.report.write import write_tables

    written = write_tables(run, found.tables)
    written.append(write_result(found.result, run / "results"))
    for name, gains in found.gain_files.items():
        written.append(save_gains(gains, run / "gains" / name))
    if json:
        print_json(found.result.details["table"])
        return
    if not quiet:
        columns = ["method", "parameters", "top1", "top1_fold_std", "top5", "macro_f1", "gain"]
        show_table(found.tables[0], [*columns, "gain_low", "gain_high", "gap_closed", "seconds"])
    typer.echo(f"{len(written)} files below {run}")


def _ensemble(store: Any, name: str, model: str | None, device: str) -> Any:
    from residual_audio.embeddings.prompts import embed_classes, find_prompts
    from residual_audio.models.registry import load_model

    loaded = load_model(model or store.model_info.name, device)
    return embed_classes(loaded, store.classes, find_prompts(name, store.template))


@app.command("fit")
def fit(
    run: options.Run,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the gains.")],
    path: Annotated[
        Literal["direct", "network"],
        typer.Option("--path", help="On contributions to the latent, or inside the encoder."),
    ] = "direct",
    unit: Annotated[
        Literal["head", "attention", "mlp", "stage", "output"], typer.Option("--unit", "-u")
    ] = "head",
    stages: Stages = "",
    components: Components_ = "all",
    keep_mean: Annotated[
        bool, typer.Option("--keep-mean/--drop-mean", help="--drop-mean: the published formula.")
    ] = True,
    mean_gains: Annotated[
        bool, typer.Option("--mean-gains/--no-mean-gains", help="Also a gain of each unit's mean.")
    ] = True,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            help="cross-entropy, contrastive, entropy, gap, spread, or gap:0.5,spread:1.",
        ),
    ] = "cross-entropy",
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", min=0.0)] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1)] = None,
    l1: Annotated[float, typer.Option("--l1", min=0.0, help="Few gains move.")] = 0.0,
    l2: Annotated[float, typer.Option("--l2", min=0.0, help="Gains stay near 1.")] = 0.0,
    non_negative: Annotated[bool, typer.Option("--non-negative")] = False,
    fold: options.Folds = None,
    model: options.ModelOfStore = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit gains on all clips of RUN (or of some folds) and write them with their card.

    Part of the clips, in whole groups, is held out to choose when to stop. Gains fitted with
    `--path network` can be folded into a checkpoint by `residual-audio export`.
    """
    from dataclasses import replace

    from residual_audio.adaptation.adapted import fit_whole
    from residual_audio.adaptation.methods.residual import DIRECT, NETWORK, ResiDual
    from residual_audio.judge.of_store import rows_of
    from residual_audio.reweight.axes import Components
    from residual_audio.reweight.gain_files import save_gains
    from residual_audio.reweight.gains import moved, n_gains
    from residual_audio.store import open_store

    store = open_store(run)
    wanted = tuple(int(s) for s in stages.split(",")) if stages else None
    parts = Components.parse(components)
    changes: dict[str, Any] = {"l1": l1, "l2": l2, "non_negative": non_negative, "seed": seed}
    changes |= {k: v for k, v in (("learning_rate", learning_rate), ("epochs", epochs)) if v}
    how = ResiDual(
        level=unit,
        stages=wanted,
        components=parts,
        keep_mean=keep_mean,
        mean_gains=mean_gains,
        objective=objective,
        path=path,
        settings=replace(DIRECT if path == "direct" else NETWORK, **changes),
        rates=(learning_rate,) if learning_rate else None,
    )
    with watching(quiet or json) as progress:
        passes = None
        if path == "network":
            rows = rows_of(store, fold)
            passes = load_passes_of(store, rows, model, root, data_option, device, progress)
        progress.step("fitting gains")
        found = fit_whole(store, how, folds=fold, seed=seed, passes=passes)
    written = save_gains(found, out)
    if json:
        print_json({"out": str(written), "gains": n_gains(found), "moved": moved(found)})
        return
    if not quiet:
        rows_ = [
            [r["unit"], r["component"], f"{r['gain']:.3f}", f"{r['energy']:.4g}"]
            for r in moved(found)
        ]
        print_table(["unit", "component", "gain", "energy"], rows_, "moved most")
    typer.echo(f"{n_gains(found):,} gains in {written}")


@app.command("retention")
def retention(
    run: options.Run,
    fold: options.Folds = None,
    folds: options.NFolds = 5,
    model: options.ModelOfStore = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """How little is enough: components a head, and heads, with the time a pruned encoder saves.

    Runs the encoder. Everything is chosen on the training part of a fold and scored on its test
    part: RUN/tables/retention_network.csv and pruning.csv.
    """
    from residual_audio.adaptation.smaller import retain_and_prune
    from residual_audio.judge.of_store import rows_of
    from residual_audio.report.write import write_tables
    from residual_audio.store import open_store

    store = open_store(run)
    rows = rows_of(store, fold)
    with watching(quiet or json) as progress:
        passes = load_passes_of(store, rows, model, root, data_option, device, progress)
        tables = retain_and_prune(
            store,
            passes,
            folds=fold,
            n_folds=folds,
            seed=seed,
            progress=progress,
        )
    written = write_tables(run, tables)
    if json:
        print_json({table.name: list(table.rows()) for table in tables})
        return
    if not quiet:
        for table in tables:
            show_table(table, list(table.columns))
    typer.echo(f"{len(written)} files in {run / 'tables'}")


@app.command("transfer")
def transfer(
    gains: Annotated[Path, typer.Argument(help="Gains written by `reweight fit`.")],
    runs: Annotated[list[Path], typer.Argument(help="Runs of the same model on other data sets.")],
    fold: options.Folds = None,
    root: options.Root = None,
    model: options.ModelOfStore = None,
    data_option: options.DataOption = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """What gains bring, or cost, on data they were not fitted on."""
    from residual_audio.adaptation.problem import problem_of
    from residual_audio.adaptation.transfer import transfer as apply
    from residual_audio.judge.of_store import rows_of
    from residual_audio.reweight.gain_files import load_gains
    from residual_audio.store import open_store

    loaded = load_gains(gains)
    rows = []
    for run in runs:
        store = open_store(run)
        clips = rows_of(store, fold)
        passes = None
        if loaded.path == "network":
            with watching(json) as progress:
                passes = load_passes_of(store, clips, model, root, data_option, device, progress)
        rows.append(apply(problem_of(store, clips, passes=passes), loaded))
    if json:
        print_json(rows)
        return
    columns = ["applied_to", "n", "top1_before", "top1_after", "gain", "gain_low", "gain_high"]
    values = [dict(row) for row in rows]
    cells = [[f"{r[c]:.4f}" if isinstance(r[c], float) else r[c] for c in columns] for r in values]
    print_table(columns, cells, f"gains fitted on {rows[0]['fitted_on']}")
