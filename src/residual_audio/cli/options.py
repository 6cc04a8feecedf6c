"""Options that several commands share, declared once: same name, same meaning, same help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="nano, hf:<repo or folder>, laion:<file.pt>, msclap:<file.pth> …"
    ),
]
Models = Annotated[
    list[str], typer.Option("--model", "-m", help="A model name; give it several times to compare.")
]
Dataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        "-d",
        help="Name of a data set (see `datasets`). Without it: folder if there is a --root, "
        "else synthetic.",
    ),
]
Root = Annotated[Path | None, typer.Option("--root", help="Folder of the data set.")]
Datasets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        "-d",
        help="A data set; give it several times for more. Without it: folder if there is a "
        "--root, else synthetic.",
    ),
]
Roots = Annotated[
    list[Path] | None,
    typer.Option("--root", help="Folder of each data set that needs one, in the same order."),
]
Folds = Annotated[
    list[str] | None, typer.Option("--fold", help="Only this fold or split; may be repeated.")
]
NFolds = Annotated[
    int, typer.Option("--folds", min=2, help="Grouped folds where there are no official ones.")
]
Run = Annotated[
    Path, typer.Argument(help="Run folder with a store that has heads and direct (see `extract`).")
]
ModelOfStore = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="The model that made the store, if it goes by another name."
    ),
]
Prompts = Annotated[
    list[str] | None,
    typer.Option(
        "--prompts",
        help="dataset, plain, sound, ensemble … or a template with {}; repeat for an ensemble.",
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Clips in one forward pass.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="Use only N clips, spread over the set; stamped partial."),
]
Sample = Annotated[
    int | None,
    typer.Option(
        "--sample",
        min=1,
        help="Use only N clips, drawn by the seed, of each class its share; stamped partial.",
    ),
]
Long = Annotated[
    Literal["first", "center", "tile"],
    typer.Option("--long", help="Clips longer than the window: first, center or tile."),
]
Hop = Annotated[
    float | None,
    typer.Option("--hop", min=0.001, help="tile: seconds from window to window (its length)."),
]
Pool = Annotated[
    Literal["all", "sounding"],
    typer.Option("--pool", help="sounding: Whisper without the positions of mere padding."),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option("--data-option", help="Option of the data set, as name=value (`datasets show`)."),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Neither read nor write cached embeddings.")
]
Resamples = Annotated[
    int, typer.Option("--resamples", min=10, help="Bootstrap resamples behind each interval.")
]
LogItems = Annotated[bool, typer.Option("--log-items", help="Also write every item, as parquet.")]
Gains = Annotated[
    Path | None,
    typer.Option(
        "--gains", "-g", help="Gains of either path at work in every pass: a file, or a run's own."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Where to write.")]
RunOut = Annotated[Path, typer.Option("--out", "-o", help="Run folder; the store goes below it.")]
ResultsOut = Annotated[
    Path, typer.Option("--out", "-o", help="Folder for the result files (one JSON each).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results.")]


def pooled(model: str, pool: str) -> str:
    """The name of a model that is pooled so."""
    ending = "?pool=sounding"
    return model if pool == "all" or model.endswith(ending) else model + ending


def name_dataset(given: str | None, root: Path | None) -> str:
    """Who names a folder and no data set means that folder."""
    return given or ("synthetic" if root is None else "folder")


def parse_data_options(given: list[str] | None) -> dict[str, object]:
    """`n_clips=100` → {"n_clips": 100}: numbers, true and false as such, all else as text."""
    from residual_audio.errors import InputError
    from residual_audio.files import parse_json

    found: dict[str, Any] = {}
    for item in given or []:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InputError(f"'{item}' is not an option of a data set: write name=value")
        try:
            found[name.replace("-", "_")] = parse_json(value)
        except ValueError:
            found[name.replace("-", "_")] = value
    return found


# of gains
Stages = Annotated[
    str, typer.Option("--stages", help="Stages to reweight, e.g. 2,3 (default all).")
]
AnswersBy = Annotated[
    Literal["labels", "captions"] | None,
    typer.Option("--by", help="What is right for a clip; labels, where every clip has one."),
]
Keep_ = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        help="Run (folds: RUN#1,2; or synthetic) whose answers are held in place; repeatable.",
    ),
]
MaxLoss = Annotated[
    float | None,
    typer.Option(
        "--max-loss", min=0.0, help="Share of right answers that --keep may lose. Without it: 0.03."
    ),
]
Components_ = Annotated[
    str,
    typer.Option(
        "--components",
        help="all (of an MLP beside heads 24), coarse, a number (16) or a share of variance (0.9).",
    ),
]
