"""ESC-50: 2,000 environmental recordings of 5 s, 50 classes, 5 official folds."""

from __future__ import annotations

from pathlib import Path

from residual_audio.data.audio_files import Files, below, nfc, readable
from residual_audio.data.base import Card, Dataset
from residual_audio.data.metadata import read_csv, whole
from residual_audio.errors import DatasetError
from residual_audio.types import Clip

CARD = Card(
    name="esc50",
    title="ESC-50: Dataset for Environmental Sound Classification",
    task="labels",
    licence="CC BY-NC 3.0 (the ESC-10 part: CC BY 3.0)",
    citation="K. J. Piczak. ESC: Dataset for Environmental Sound Classification. ACM MM 2015.",
    url="https://github.com/karolpiczak/ESC-50",
    layout="meta/esc50.csv\naudio/{fold}-{source}-{take}-{target}.wav",
    download=(
        "Download https://github.com/karolpiczak/ESC-50/archive/master.zip, unpack it, and give "
        "the folder that holds audio/ and meta/."
    ),
    n_clips=2000,
    n_classes=50,
    counts={str(fold): 400 for fold in range(1, 6)},
    group=(
        "the Freesound recording a clip was cut from (src_file). The official folds keep it whole, "
        "but for a few recordings that were used for two classes"
    ),
    options={
        "captions": "CSV with filename and caption_1 … (or caption, or title)",
    },
)
COLUMNS = ("filename", "fold", "target", "category", "src_file")


def load(root: Path, captions: str | Path | None = None) -> Dataset:
    table = below(root, "meta/esc50.csv")
    home = table.parent.parent
    files = Files(home)
    said = {} if captions is None else read_captions(Path(captions))
    clips, missing, targets = [], {}, {}
    for row in read_csv(table, COLUMNS):
        name = row["filename"]
        path = files.find(f"audio/{name}")
        label = readable(row["category"])
        targets[label] = whole(table, "target", row["target"])
        clip = Clip(
            id=name,
            path=path or home / "audio" / name,
            label=label,
            captions=said.pop(stem(name), ()),
            fold=whole(table, "fold", row["fold"]),
            group=row["src_file"],
        )
        clips.append(clip)
        if path is None:
            missing[clip.id] = f"no file audio/{name}"
    return Dataset(
        name="esc50",
        root=home,
        clips=tuple(clips),
        classes=tuple(sorted(targets, key=lambda label: targets[label])),
        card=CARD,
        folds={fold: str(fold) for fold in sorted({c.fold for c in clips if c.fold is not None})},
        missing=missing,
        ignored=dict.fromkeys(said, "a caption for a clip that is not here"),
    )


def stem(name: str) -> str:
    """File name without its suffix: the same clip may be .wav here and .ogg there."""
    return nfc(name).rpartition(".")[0] or nfc(name)


def read_captions(path: Path) -> dict[str, tuple[str, ...]]:
    """File name without suffix → captions, from the columns `caption…`, else `title`."""
    rows = read_csv(path, ["filename"])
    columns = [name for name in rows[0] if name.startswith("caption")]
    columns = columns or [name for name in rows[0] if name == "title"]
    if not columns:
        raise DatasetError(
            f"'{path}' has no captions; found: {', '.join(rows[0])}; "
            "expected: filename and caption, caption_1 … or title"
        )
    said: dict[str, tuple[str, ...]] = {}
    for row in rows:
        texts = tuple(row[name].strip() for name in columns if row[name].strip())
        key = stem(row["filename"])
        said[key] = said.get(key, ()) + texts
    return said
