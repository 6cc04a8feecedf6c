"""`residual-audio mushra`: what listeners said, screened, tested and summarised."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.scores import shown


def run(
    file: Annotated[Path, typer.Argument(help="webMUSHRA result file, or a wide table (CSV).")],
    scale: Annotated[
        str | None, typer.Option("--scale", help="Ends of the rating scale, e.g. 0,100 or 1,5.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="Stimulus that is the hidden reference.")
    ] = None,
    anchor: Annotated[
        list[str] | None, typer.Option("--anchor", help="Stimulus that is an anchor; repeatable.")
    ] = None,
    screen: Annotated[
        bool,
        typer.Option(
            "--screen/--no-screen",
            help="Leave out listeners who miss reference or anchor.",
        ),
    ] = True,
    seed: options.Seed = 0,
    resamples: options.Resamples = 2000,
    log_items: Annotated[
        bool, typer.Option("--log-items", help="Also write the ratings used, without identities.")
    ] = False,
    out: options.ResultsOut = Path("results"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Means, medians, Friedman and Wilcoxon tests, agreement and a box plot; no personal data."""
    from residual_audio.report import figures_evaluation as plots
    from residual_audio.report.style import save
    from residual_audio.results import result_to_dict, write_result
    from residual_audio.surface.generated import listening_test

    found, used = listening_test(
        file,
        parse_scale(scale),
        reference=reference,
        anchors=anchor,
        screen=screen,
        seed=seed,
        n_resamples=resamples,
    )
    path = write_result(found, out, items=log_items)
    values = [used.values[:, :, k] for k in range(len(used.systems))]
    figure = plots.rating_boxes(used.systems, [v[v == v] for v in values], used.scale)
    save(figure, path.with_suffix(".png"))
    if json:
        print_json(result_to_dict(found, items=False))
        return
    details = found.details
    scores = {score.name: score for score in found.scores}
    rows = []
    for system in details["systems"]:
        mean, median = scores[f"mean/{system}"], scores[f"median/{system}"]
        rows.append(
            [
                system,
                shown(mean.value, mean.low, mean.high),
                shown(median.value, median.low, median.high),
                mean.n,
            ]
        )
    print_table(
        ["system", "mean", "median", "ratings"],
        rows,
        f"{details['n_listeners']} listeners, {details['n_trials']} trials",
    )
    print_table(
        ["a", "b", "a − b", "effect", "p", "p Holm", "listeners"],
        [
            [
                row["a"],
                row["b"],
                shown(row["difference"]),
                shown(row["rank_biserial"]),
                f"{row['p']:.4f}",
                f"{row['p_holm']:.4f}",
                row["n"],
            ]
            for row in details["pairwise"]
        ],
        "Wilcoxon signed-rank tests on listener means over shared trials",
    )
    friedman, agreement = details["friedman"], details["agreement"]
    if friedman["statistic"] != friedman["statistic"]:
        typer.echo(
            "Friedman's test compares three systems or more, rated by two listeners or more in "
            "trials that hold all of them: it does not apply here"
        )
    else:
        say(
            f"Friedman χ² = {friedman['statistic']:.2f}, p = {friedman['p']:.2g} over "
            f"{friedman['n_trials']} trials with all systems; "
            f"Kendall's W = {friedman['kendall_w']:.2f}"
        )
    say(
        f"ICC(2,1) = {agreement['icc2_1']:.2f}, ICC(2,k) = {agreement['icc2_k']:.2f}, "
        f"ICC(3,1) = {agreement['icc3_1']:.2f} over {agreement['n_stimuli']} stimuli"
    )
    screening = details["screening"]
    if screening["possible"]:
        done = "left out" if screening["applied"] else "kept"
        say(f"screening: {screening['n_flagged']} listeners flagged and {done}")
    for warning in details["warnings"]:
        say(f"note: {warning}", err=True)
    if not quiet:
        say(f"written: {path}")


def parse_scale(text: str | None) -> tuple[float, float] | None:
    """`0,100` → (0, 100)."""
    from residual_audio.errors import InputError

    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.replace("-", ",").split(","))
    except ValueError:
        raise InputError(f"'{text}' is not a scale: write its two ends, e.g. 0,100") from None
    if not high > low:
        raise InputError(f"the scale '{text}' ends before it begins")
    return low, high
