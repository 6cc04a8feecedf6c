"""AudioCaps v1: captions for 10 s pieces of YouTube videos."""

from __future__ import annotations

from pathlib import Path

from residual_audio.data.audio_files import Files, below
from residual_audio.data.base import Card, Dataset
from residual_audio.data.metadata import Row, read_csv
from residual_audio.errors import DatasetError
from residual_audio.types import Clip

CARD = Card(
    name="audiocaps",
    title="AudioCaps v1: audio captioning in the wild",
    task="captions",
    licence="captions: MIT; audio: the YouTube videos' own",
    citation=(
        "C. D. Kim, B. Kim, H. Lee, G. Kim. AudioCaps: Generating Captions for Audios in The Wild. "
        "NAACL-HLT 2019."
    ),
    url="https://github.com/cdjkim/audiocaps",
    layout=(
        "{train,val,test}.csv (also in dataset/, or audiocaps_{split}.csv)\n"
        "Y{youtube_id}.wav, {youtube_id}_{start_time}.wav or {youtube_id}.wav, in audio/{split}/, "
        "audio/, {split}/ or the root"
    ),
    download=(
        "Get the three CSV files from the project page and the audio of the listed videos "
        "yourself: it is not distributed, and part of it is no longer online (listed as missing)."
    ),
    n_clips=51308,
    counts={"train": 49838, "val": 495, "test": 975},
    group="the YouTube video",
    options={"split": "train, val or test: read only this part"},
)
SPLITS = {"train": 1, "val": 2, "test": 3}
COLUMNS = ("audiocap_id", "youtube_id", "start_time", "caption")


def load(root: Path, split: str | None = None) -> Dataset:
    if split is not None and split not in SPLITS:
        raise DatasetError(f"audiocaps has no split '{split}'; there are: {', '.join(SPLITS)}")
    wanted = [split] if split else list(SPLITS)
    tables = {
        name: [f"{name}.csv", f"dataset/{name}.csv", f"audiocaps_{name}.csv"] for name in wanted
    }
    first = below(root, *(place for name in wanted for place in tables[name]))
    home = first.parent.parent if first.parent.name == "dataset" else first.parent
    files = Files(home)
    clips: list[Clip] = []
    missing: dict[str, str] = {}
    folds = {}
    for name in wanted:
        table = next((home / p for p in tables[name] if (home / p).is_file()), None)
        if table is None:
            continue
        folds[SPLITS[name]] = name
        for rows in _by_clip(read_csv(table, COLUMNS)):
            video, start = rows[0]["youtube_id"].strip(), rows[0]["start_time"].strip()
            path = _find(files, name, video, start)
            clip = Clip(
                id=f"{name}/{video}_{start}",
                path=path or home / "audio" / f"Y{video}.wav",
                captions=tuple(row["caption"].strip() for row in rows if row["caption"].strip()),
                fold=SPLITS[name],
                group=video,
            )
            clips.append(clip)
            if path is None:
                missing[clip.id] = f"no file Y{video}.wav or {video}_{start}.wav"
    return Dataset("audiocaps", home, tuple(clips), CARD, folds=folds, missing=missing)


def _by_clip(rows: list[Row]) -> list[list[Row]]:
    """The five captions of a validation or test clip stand in five rows."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["youtube_id"], row["start_time"]), []).append(row)
    return list(found.values())


def _find(files: Files, split: str, video: str, start: str) -> Path | None:
    for folder in (f"audio/{split}/", "audio/", f"{split}/", ""):
        for name in (f"Y{video}", f"{video}_{start}", f"Y{video}_{start}", video):
            if path := files.find(f"{folder}{name}.wav"):
                return path
    return None
