"""`residual-audio reweight`: fit gains, compare them with everything a sceptic would try."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from residual_audio.cli import options, reweight_protocol, reweight_studies
from residual_audio.cli.adapted_table import answer, show_splits, show_verdicts
from residual_audio.cli.groups import Group
from residual_audio.cli.inputs import given_bounds, given_run
from residual_audio.cli.output import print_json, print_table, say, show_table
from residual_audio.cli.terminal import watching

if TYPE_CHECKING:
    from residual_audio.surface.caption_gains import CaptionAdaptation
    from residual_audio.surface.runs import Run

app = typer.Typer(
    cls=Group,
    help="ResiDual: reweight the components of heads, and judge it honestly.",
    no_args_is_help=True,
)


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
    every_method: Annotated[
        bool,
        typer.Option("--every-method", help="All methods, not the main ones (four times as long)."),
    ] = False,
    network: Annotated[
        bool,
        typer.Option("--network", help="Also what runs the encoder: gains in it, LoRA, tuning."),
    ] = False,
    split: Annotated[
        str,
        typer.Option("--split", help="Other folds: FILE.csv#COLUMN or FILE.csv#COLUMN:blocks."),
    ] = "",
    by: options.AnswersBy = None,
    keep: options.Keep_ = None,
    max_loss: options.MaxLoss = None,
    cost: Annotated[
        list[str] | None,
        typer.Option("--cost", help="Run (or folds: RUN#4) to say the cost on; nothing is held."),
    ] = None,
    draws: Annotated[
        int, typer.Option("--draws", min=0, help="Choose heads again in so many bootstrap draws.")
    ] = 0,
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
    """Adaptations, controls and baselines on the same grouped folds: RUN/tables/adapted.csv.

    A comparison of some methods or folds has tables of its own (RUN/tables/adapted_….csv) and
    leaves those of the whole as they are. With `--by captions` (or where clips have no labels):
    R@1, 5, 10 both ways before and after, in RUN/tables/retrieval_adapted….csv.
    """
    from residual_audio.report.write import write_tables
    from residual_audio.results import write_result
    from residual_audio.surface.caption_gains import compare_captions
    from residual_audio.surface.fitted import AdaptSettings, compare_methods
    from residual_audio.surface.given import save_gains

    with watching(quiet or json) as progress:
        settings = AdaptSettings(
            folds=tuple(fold or ()),
            n_folds=folds,
            split=split,
            seeds=tuple(range(seed, seed + seeds)),
            shots=tuple(int(n) for n in shots.split(",")) if shots else (),
            methods=tuple(method or ()),
            every_method=every_method,
            allow_missing=allow_missing,
            keep=tuple(keep or ()),
            max_loss=max_loss,
            cost=tuple(cost or ()),
            draws=draws,
        )
        given = given_run(run, root, data_option)
        if _by_captions(by, given):
            if ensemble is not None:
                raise typer.BadParameter("--ensemble needs classes: leave it out")
            captions = compare_captions(
                given, settings, model=model, network=network, device=device, progress=progress
            )
            _say_captions(run, captions, json, quiet)
            return
        found = compare_methods(
            given,
            settings,
            model=model,
            network=network,
            ensemble=ensemble,
            device=device,
            progress=progress,
        )
    written = write_tables(run, found.tables)
    written.append(write_result(found.result, run / "results"))
    for name, gains in found.gain_files.items():
        written.append(save_gains(gains, run / "gains" / name))
    if json:
        print_json(found.result.details["table"])
        return
    if found.main is not None:
        say(answer(found.main, len(found.result.details["classes"])))
    if not quiet:
        show_verdicts(found.result.details["table"], found.tables[0].caption)
        if found.splits:
            show_splits(found.splits, "The same on every split that the data allow")
        elif given.lacks_folder and not (method or fold or split):
            say("harder splits that the data's own tables may allow are left out: give --root")
    say(f"{len(written)} files below {run}")
    if note := (found.result.details["heard_before"] or {}).get("note"):
        say(f"note: {note}", err=True)


@app.command("fit")
def fit(
    run: options.Run,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the gains.")],
    path: Annotated[
        Literal["direct", "network"],
        typer.Option("--path", help="On contributions to the latent, or inside the encoder."),
    ] = "direct",
    unit: Annotated[
        Literal["residual", "head", "attention", "mlp", "stage", "output"] | None,
        typer.Option(
            "--unit",
            "-u",
            help="What is reweighted; residual: heads, and the strongest components of MLPs. "
            "Without it: residual where few are chosen within bounds, else (and with --keep) head.",
        ),
    ] = None,
    stages: options.Stages = "",
    components: options.Components_ = "all",
    whiten: Annotated[
        Literal["all", "within"],
        typer.Option(
            "--whiten",
            help="What learned components are uncorrelated over: all clips, or mostly clips seen "
            "from the mean of their class (within), which reaches further.",
        ),
    ] = "all",
    keep_mean: Annotated[
        bool, typer.Option("--keep-mean/--drop-mean", help="--drop-mean: the published formula.")
    ] = True,
    mean_gains: Annotated[
        bool, typer.Option("--mean-gains/--no-mean-gains", help="Also a gain of each unit's mean.")
    ] = True,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            help="cross-entropy (default of labels), contrastive (of captions), entropy, gap, "
            "spread, or a mixture: contrastive:1,gap:0.5.",
        ),
    ] = None,
    by: options.AnswersBy = None,
    axes: Annotated[
        Literal["pca", "rotated", "random", "learned"] | None,
        typer.Option(
            "--axes",
            help="Principal (pca) or control axes, or learned together with the gains in the same "
            "subspaces. Without it: learned; pca with --unbounded, --path network, other units.",
        ),
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            "--bounds",
            help="Least and largest gain; inf for no bound. Without it: 0,4; none with --keep.",
        ),
    ] = None,
    penalty: Annotated[
        Literal["few", "group", "lasso", "ridge"] | None,
        typer.Option(
            "--penalty",
            help="What stays at 1: all but a share of the units (few), units or single gains that "
            "are not worth it (group, lasso), nothing (ridge). Without it: few.",
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            "--share",
            help="Of all units, at most so many move (few). Without it: 0.32; all with --keep.",
        ),
    ] = None,
    agree: Annotated[
        float | None,
        typer.Option(
            "--agree",
            help="Cosine that edits of two parts of the clips are to have. Without it: 0.9.",
        ),
    ] = None,
    unbounded: Annotated[
        bool, typer.Option("--unbounded", help="No bounds, ridge: a classifier in the heads.")
    ] = False,
    keep: options.Keep_ = None,
    max_loss: options.MaxLoss = None,
    hold: Annotated[
        Literal["answers", "embeddings"] | None,
        typer.Option(
            "--hold", help="What of the clips of --keep is held in place. Without it: answers."
        ),
    ] = None,
    blended: Annotated[
        float, typer.Option("--blend", min=0.0, max=1.0, help="Write gains this far from 1.")
    ] = 1.0,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", min=0.0, help="Of --path network.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="At most so many; of --path network.")
    ] = None,
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

    Part of the clips, in whole groups, is held out to choose how strongly gains are held at 1 (or
    when to stop); what they say before and after is printed. Gains fitted with `--path network` can
    be folded into a checkpoint by `residual-audio export`.
    """
    from dataclasses import replace

    from residual_audio.surface.caption_gains import fit_caption_gains
    from residual_audio.surface.fitted import (
        NETWORK,
        RATES,
        Components,
        ResiDual,
        edit_size,
        fit_gains,
        moved,
        n_gains,
    )
    from residual_audio.surface.given import save_gains

    wanted = tuple(int(s) for s in stages.split(",")) if stages else None
    parts = Components.parse(components)
    how = ResiDual(
        level=unit,
        stages=wanted,
        components=parts,
        whiten=whiten,
        keep_mean=keep_mean,
        mean_gains=mean_gains,
        objective=objective,
        path=path,
        axes=axes,
        bounds=given_bounds(bounds),
        penalty=penalty,
        share=share,
        agreement=agree,
        unbounded=unbounded,
        keep=tuple(keep or ()),
        max_loss=max_loss,
        hold=hold,
        settings=replace(NETWORK, epochs=epochs) if epochs else None,
        rates=(learning_rate,) if learning_rate else (RATES if path == "network" else ()),
    )
    given = given_run(run, root, data_option)
    captions = _by_captions(by, given)
    with watching(quiet or json) as progress:
        found = (fit_caption_gains if captions else fit_gains)(
            given,
            how,
            model=model,
            folds=fold,
            seed=seed,
            amount=blended,
            device=device,
            progress=progress,
        )
    written = save_gains(found, out)
    size = edit_size(found)
    if json:
        about = {"fitted": dict(found.fitted_on), "edit": size, "moved": moved(found)}
        print_json({"out": str(written), "gains": n_gains(found), **about})
        return
    rows_ = [
        [r["unit"], r["component"], f"{r['gain']:.3f}", f"{r['energy']:.4g}"] for r in moved(found)
    ]
    if rows_ and not quiet:
        print_table(["unit", "component", "gain", "energy"], rows_, "moved most")
    for name, lost in found.fitted_on.items():
        if name.startswith("lost on "):
            typer.echo(f"{name}: {lost:.1%} of right answers")
    typer.echo(_learned(found.fitted_on, "R@1 of clips for captions" if captions else "top-1"))
    say(
        f"{size['moved']:,} of {n_gains(found):,} gains moved, in {size['units_moved']} of "
        f"{size['units']} units; {written}"
    )


def _by_captions(by: str | None, run: Run) -> bool:
    from residual_audio.surface.caption_gains import goes_by_captions

    return by == "captions" if by else goes_by_captions(run)


def _say_captions(run: Path, found: CaptionAdaptation, json: bool, quiet: bool) -> None:
    """Write what a comparison on captions found, and print its table."""
    from residual_audio.report.write import write_tables
    from residual_audio.results import write_result
    from residual_audio.surface.caption_gains import EVERY_FOLD
    from residual_audio.surface.given import save_gains

    table = found.tables[0]
    written = write_tables(run, found.tables)
    written.append(write_result(found.result, run / "results"))
    for name, gains in found.gain_files.items():
        written.append(save_gains(gains, run / "gains" / name))
    if json:
        print_json(found.result.details["table"])
        return
    if not quiet:
        columns = ["method", "parameters", "direction", "k", "count", "before", "recall", "gain"]
        columns += ["gain_low", "gain_high", "n", "chance"]
        show_table(table.where(table["fold"] == EVERY_FOLD), columns)
        for line in table.notes:
            typer.echo(line)
    say(f"{len(written)} files below {run}")
    if note := (found.result.details["heard_before"] or {}).get("note"):
        say(f"note: {note}", err=True)


def _learned(notes: Mapping[str, object], measure: str = "top-1") -> str:
    """What held-out clips say, before and after."""
    before, after = notes.get("held_out_top1_before"), notes.get("held_out_top1")
    if before is None or after is None:
        if "held_out_loss" in notes and not notes["epochs"]:
            return "nothing was learned: no epoch lowered the held-out loss, all gains are 1"
        if "held_out_loss" in notes:
            return f"held-out loss {notes['held_out_loss']:.3f} after {notes['epochs']} epochs"
        return "no clip was held out to judge by"
    if notes.get("hold") == float("inf"):
        return (
            f"nothing moved: no hold keeps what changes on the references surely within --max-loss "
            f"and helps here; held-out {measure} stays at {before:.1%}. More reference clips, or a "
            "larger --max-loss, leave more room"
        )
    if notes.get("strength") == float("inf"):
        return f"nothing was learned: held-out {measure} stays at {before:.1%}, all gains are 1"
    return (
        f"held-out {measure} {before:.1%} before, {after:.1%} after (loss "
        f"{notes['held_out_before']:.3f} → {notes['held_out_loss']:.3f} ± "
        f"{notes['held_out_error']:.3f})"
        + (f"; two parts agree to {notes['agreement']:.2f}" if "agreement" in notes else "")
        + ("" if notes.get("converged", True) else "; stopped before it converged")
    )


app.command("front")(reweight_studies.front)
app.command("trade")(reweight_studies.trade)
app.command("retention")(reweight_studies.retention)
app.command("exit")(reweight_studies.exits)
app.command("protocol")(reweight_protocol.protocol)
app.command("rule")(reweight_studies.rule)
app.command("transfer")(reweight_studies.transfer)
app.command("sliders")(reweight_studies.sliders)
