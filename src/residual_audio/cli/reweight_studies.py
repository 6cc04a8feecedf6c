"""Studies of gains for `residual-audio reweight`: the front, how little is enough, elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.inputs import given_bounds, given_run
from residual_audio.cli.output import print_json, print_table, say, show_table
from residual_audio.cli.terminal import watching
from residual_audio.errors import InputError

if TYPE_CHECKING:
    from residual_audio.table import Table


def front(
    run: options.Run,
    keep: Annotated[
        list[str],
        typer.Option("--keep", help="Reference run (folds: RUN#1,2; or synthetic); repeatable."),
    ],
    fold: options.Folds = None,
    folds: options.NFolds = 5,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this fold, by name; repeatable.")
    ] = None,
    network: Annotated[
        bool, typer.Option("--network", help="Also what runs the encoder: gains in it, and LoRA.")
    ] = False,
    model: options.ModelOfStore = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """What is gained here against what is lost elsewhere, against the size of the edit.

    Followed along the strength that holds the references, the largest gain, and blends of gains, of
    a linear map to the class texts and (`--network`) of LoRA with the identity:
    RUN/tables/front.csv and RUN/figures/front.
    """
    from residual_audio.report.figures import draw_all
    from residual_audio.report.write import write_tables
    from residual_audio.surface.gain_studies import Studied, gain_front

    with watching(quiet or json) as progress:
        studied = Studied(given_run(run, root, data_option), fold, folds, seed, model, device)
        table = gain_front(studied, keep, network=network, only=only or (), progress=progress)
    written = [*write_tables(run, [table]), *draw_all(run, {"front"})]
    if json:
        print_json(list(table.rows()))
        return
    if not quiet:
        show_table(table, list(table.columns))
    say(f"{len(written)} files below {run}")


def trade(
    run: options.Run,
    bounds: Annotated[
        str | None,
        typer.Option("--bounds", help="Least and largest gain, like -1,4. Without it: 0,4."),
    ] = None,
    fold: options.Folds = None,
    folds: options.NFolds = 5,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """What bounded gains reach against how many heads move, against stability over folds.

    A grid of shares of the heads and of ridges, every point on all folds: RUN/tables/trade.csv and
    RUN/figures/trade. Other bounds have a table of their own.
    """
    from residual_audio.report.figures import draw_all
    from residual_audio.report.write import write_tables
    from residual_audio.surface.gain_studies import Studied, gain_trade

    with watching(quiet or json) as progress:
        studied = Studied(given_run(run), fold, folds, seed)
        table = gain_trade(studied, given_bounds(bounds), progress)
    written = [*write_tables(run, [table]), *draw_all(run, {"trade"} & {table.name})]
    if json:
        print_json(list(table.rows()))
        return
    if not quiet:
        show_table(table, list(table.columns))
    say(f"{len(written)} files below {run}")


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
    from residual_audio.surface.gain_studies import Studied, how_little

    given = given_run(run, root, data_option)
    with watching(quiet or json) as progress:
        tables = how_little(Studied(given, fold, folds, seed, model, device), progress)
    _finish(run, tables, json, quiet)


def exits(
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
    """Text accuracy after each block, and of clips that leave at their first sure answer.

    The stream after a block goes through a ridge map (fitted on other folds) and the model's own
    joint head; RUN needs `extract --capture heads,blocks,direct`. Writes
    RUN/tables/early_exit_blocks.csv and early_exit_thresholds.csv, with the time saved.
    """
    from residual_audio.surface.gain_studies import Studied, early_exits

    given = given_run(run, root, data_option)
    with watching(quiet or json) as progress:
        tables = early_exits(Studied(given, fold, folds, seed, model, device), progress)
    _finish(run, tables, json, quiet)


def _finish(run: Path, tables: list[Table], json: bool, quiet: bool) -> None:
    """Tables below the run, and on the terminal."""
    from residual_audio.report.write import write_tables

    written = write_tables(run, tables)
    if json:
        print_json({table.name: list(table.rows()) for table in tables})
        return
    if not quiet:
        for table in tables:
            show_table(table, list(table.columns))
    say(f"{len(written)} files in {run / 'tables'}")


def rule(
    name: Annotated[
        str,
        typer.Argument(help="prune-early, amplify-minor, suppress-degenerate, window, retain …"),
    ],
    run: options.Run,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the gains.")],
    number: Annotated[
        list[str] | None,
        typer.Option("--number", help="A number of the rule: share=0.5, factor=2; repeatable."),
    ] = None,
    path: Annotated[
        Literal["direct", "network"],
        typer.Option("--path", help="On contributions to the latent, or inside the encoder."),
    ] = "direct",
    stages: options.Stages = "",
    fold: options.Folds = None,
    model: options.ModelOfStore = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Gains by a rule, without training: written, and judged on the clips of RUN.

    Numbers of components are shares of a head's width, so that a rule means the same on every
    model. `fisher` looks at the labels of these clips: what it says of itself here flatters it, and
    `reweight compare --method rule-*` judges all rules on grouped folds.
    """
    from residual_audio.surface.gain_studies import Rule, Studied, ruled
    from residual_audio.surface.given import save_gains

    asked = Rule(name, tuple(int(s) for s in stages.split(",")) if stages else None)
    numbers = _numbers(number or [])
    studied = Studied(given_run(run, root, data_option), fold, model=model, device=device)
    with watching(quiet or json) as progress:
        found, judged = ruled(studied, asked, path=path, numbers=numbers, progress=progress)
    written = save_gains(found, out)
    if json:
        print_json({"out": str(written), **judged})
        return
    say(
        f"{name}: top-1 {judged['top1_before']:.1%} before, {judged['top1_after']:.1%} after "
        f"({judged['gain']:+.1%} [{judged['gain_low']:+.1%}, {judged['gain_high']:+.1%}], "
        f"n = {judged['n']}); {written}"
    )


def _numbers(given: list[str]) -> dict[str, float]:
    from residual_audio.errors import InputError

    found = {}
    for text in given:
        key, _, value = text.partition("=")
        try:
            found[key.strip()] = float(value)
        except ValueError as error:
            raise InputError(f"'{text}' is no number of a rule: write share=0.5") from error
    return found


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
    from residual_audio.surface.gain_studies import Studied, transferred
    from residual_audio.surface.given import given_gains

    loaded, rows = given_gains(gains), []
    for run in runs:
        given = given_run(run, root, data_option)
        with watching(json) as progress:
            studied = Studied(given, fold, model=model, device=device)
            rows.append(transferred(studied, loaded, progress=progress))
    if json:
        print_json(rows)
        return
    columns = ["applied_to", "n", "top1_before", "top1_after", "gain", "gain_low", "gain_high"]
    values = [dict(row) for row in rows]
    cells = [[f"{r[c]:.4f}" if isinstance(r[c], float) else r[c] for c in columns] for r in values]
    print_table(columns, cells, f"gains fitted on {rows[0]['fitted_on']}")


def sliders(
    run: options.Run,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the gains.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="UNIT=λ, or UNIT=λ,λ1,λ2 with gains of its first components."),
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help="A rule, or RULE:STRENGTH; may be repeated.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Sliders as they are set in the atlas, as gains for every command that takes --gains."""
    from residual_audio.surface.gain_studies import slider_gains
    from residual_audio.surface.given import save_gains

    wanted = {}
    for text in settings or []:
        unit, _, values = text.partition("=")
        wanted[unit] = [_number(v, text) for v in values.split(",")]
    rules = {}
    for text in rule or []:
        name, _, strength = text.partition(":")
        rules[name] = _number(strength or "1", text)
    found = slider_gains(run, wanted, rules=rules)
    written = save_gains(found, out)
    if json:
        print_json({"out": str(written), "units": list(found.gains)})
        return
    units = list(found.gains)
    more = f" and {len(units) - 4} more" if len(units) > 4 else ""
    say(f"gains of {len(units)} units ({', '.join(units[:4])}{more}); {written}")


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"'{whole}' sets no gain: write it like s3=0.5 or s3.b0.h0=1,0") from None
