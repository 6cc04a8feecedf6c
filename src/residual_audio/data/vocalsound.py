"""VocalSound: 21,024 recordings of coughs, laughter, sighs … by 3,365 people."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from residual_audio.data.audio_files import Files, below, is_audio
from residual_audio.data.base import Card, Dataset
from residual_audio.errors import DatasetError
from residual_audio.files import read_json
from residual_audio.types import Clip

CARD = Card(
    name="vocalsound",
    title="VocalSound: human vocal sounds",
    task="labels",
    licence="CC BY-SA 4.0",
    citation=(
        "Y. Gong, J. Yu, J. Glass. VocalSound: A Dataset for Improving Human Vocal Sounds "
        "Recognition. ICASSP 2022."
    ),
    url="https://github.com/YuanGongND/vocalsound",
    layout=(
        "audio_44k/ (or data_44k/, audio_16k/) {f|m}NNNN_{session}_{sound}.wav\n"
        "datafiles/{tr,val,te}.json (or *_rev.json)"
    ),
    download=(
        "Download vs_release_44k.zip (or 16k) from the project page, unpack it, and give the "
        "folder that holds the audio folder and datafiles/."
    ),
    n_clips=21024,
    n_classes=6,
    counts={"train": 15570, "val": 1860, "test": 3594},
    group="the speaker; the official split keeps speakers apart",
)
FOLDERS = ("audio_44k", "data_44k", "audio_16k", "data_16k", "audio")
SPLITS = {"tr": (1, "train"), "val": (2, "val"), "te": (3, "test")}
LABELS = {
    "cough": "cough",
    "laughter": "laughter",
    "sigh": "sigh",
    "sneeze": "sneeze",
    "sniff": "sniff",
    "throatclearing": "throat clearing",
}
NAME = re.compile(r"([fm]\d+)_(\d+)_([a-z]+)")


def load(root: Path) -> Dataset:
    audio = below(root, *FOLDERS)
    home = audio.parent
    splits = _splits(home)
    present = {path.stem: path for path in sorted(audio.iterdir()) if is_audio(path.name)}
    files = Files(home)
    clips, missing, ignored = [], {}, {}
    for stem in sorted({*present, *splits}):
        found = NAME.fullmatch(stem)
        if found is None or found[3] not in LABELS:
            ignored[stem] = "not named like {f|m}NNNN_{session}_{sound}"
            continue
        path = present.get(stem) or files.find(f"{audio.name}/{stem}.wav")
        clip = Clip(
            id=f"{stem}.wav",
            path=path or audio / f"{stem}.wav",
            label=LABELS[found[3]],
            fold=splits.get(stem),
            group=found[1],
        )
        clips.append(clip)
        if path is None:
            missing[clip.id] = f"no file {audio.name}/{stem}.wav"
    if not clips:
        raise DatasetError(f"no recordings like f0003_0_cough.wav in '{audio}'")
    return Dataset(
        name="vocalsound",
        root=home,
        clips=tuple(clips),
        classes=tuple(LABELS.values()),
        card=CARD,
        folds=dict(SPLITS.values()) if splits else {},
        missing=missing,
        ignored=ignored,
    )


def _splits(home: Path) -> dict[str, int]:
    """Recording → split number. Paths in these files are the authors' own: only names count."""
    found: dict[str, int] = {}
    for short, (number, _) in SPLITS.items():
        for name in (f"{short}.json", f"{short}_rev.json"):
            path = home / "datafiles" / name
            if not path.is_file():
                continue
            listed = read_json(path, DatasetError)
            rows = listed.get("data") if isinstance(listed, dict) else None
            if not isinstance(rows, list) or not all(
                isinstance(row, dict) and isinstance(row.get("wav"), str) for row in rows
            ):
                raise DatasetError(f"'{path}' is not a list of recordings: expected data[].wav")
            for row in rows:
                stem = PurePosixPath(row["wav"].replace("\\", "/")).stem
                if found.setdefault(stem, number) != number:
                    raise DatasetError(f"'{path}' has {stem}, which is in another split too")
            break
    return found
