"""NSynth: 305,979 notes of 1,006 instruments, 11 families."""

from __future__ import annotations

from pathlib import Path

from residual_audio.data.audio_files import Files, below, readable
from residual_audio.data.base import Card, Dataset
from residual_audio.errors import DatasetError
from residual_audio.files import read_json
from residual_audio.types import Clip

CARD = Card(
    name="nsynth",
    title="NSynth: musical notes, by instrument family",
    task="labels",
    licence="CC BY 4.0",
    citation=(
        "J. Engel, C. Resnick, A. Roberts, S. Dieleman, D. Eck, K. Simonyan, M. Norouzi. Neural "
        "Audio Synthesis of Musical Notes with WaveNet Autoencoders. ICML 2017."
    ),
    url="https://magenta.tensorflow.org/datasets/nsynth",
    layout="nsynth-{train,valid,test}/examples.json\nnsynth-{train,valid,test}/audio/<note>.wav",
    download=(
        "Download the json/wav archives from the project page (the test part alone is enough to "
        "begin with), unpack them side by side, and give the folder that holds nsynth-test/ …"
    ),
    n_clips=305979,
    n_classes=11,
    counts={"train": 289205, "valid": 12678, "test": 4096},
    group=(
        "the instrument (instrument_str). The official split keeps the instruments of train apart "
        "from the others; valid and test share theirs"
    ),
    options={"split": "train, valid or test: read only this part"},
)
SPLITS = {"train": 1, "valid": 2, "test": 3}
FAMILIES = (
    "bass", "brass", "flute", "guitar", "keyboard", "mallet", "organ", "reed", "string",
    "synth lead", "vocal",
)  # fmt: skip


def load(root: Path, split: str | None = None) -> Dataset:
    if split is not None and split not in SPLITS:
        raise DatasetError(f"nsynth has no split '{split}'; there are: {', '.join(SPLITS)}")
    parts = _parts(root, split)
    clips: list[Clip] = []
    missing: dict[str, str] = {}
    for name, folder in parts:
        _read(folder, name, clips, missing)
    return Dataset(
        name="nsynth",
        root=root,
        clips=tuple(clips),
        classes=FAMILIES,
        card=CARD,
        folds={SPLITS[name]: name for name, _ in parts if name in SPLITS},
        missing=missing,
    )


def _parts(root: Path, split: str | None) -> list[tuple[str, Path]]:
    """Parts of the release below a root, or the one part that the root is."""
    if (root / "examples.json").is_file():
        name = next((s for s in SPLITS if root.resolve().name.endswith(s)), "")
        if split not in (None, name):
            raise DatasetError(f"'{root}' is not the {split} part of nsynth")
        return [(name, root)]
    found = [(s, root / f"nsynth-{s}") for s in SPLITS if split in (None, s)]
    found = [(s, folder) for s, folder in found if (folder / "examples.json").is_file()]
    if not found:
        wanted = [f"nsynth-{s}/examples.json" for s in SPLITS if split in (None, s)]
        table = below(root, *wanted)
        return _parts(table.parent.parent, split)
    return found


def _read(folder: Path, split: str, clips: list[Clip], missing: dict[str, str]) -> None:
    table = folder / "examples.json"
    notes = read_json(table, DatasetError)
    if not isinstance(notes, dict) or not notes:
        raise DatasetError(f"'{table}' has no notes: expected note name → properties")
    files = Files(folder)
    for note in sorted(notes):
        about = notes[note]
        if not isinstance(about, dict) or not {"instrument_str", "instrument_family_str"} <= set(
            about
        ):
            raise DatasetError(
                f"'{table}': note '{note}' lacks instrument_str or instrument_family_str"
            )
        path = files.find(f"audio/{note}.wav")
        clip = Clip(
            id=f"{split}/{note}" if split else note,
            path=path or folder / "audio" / f"{note}.wav",
            label=readable(about["instrument_family_str"]),
            fold=SPLITS.get(split),
            group=about["instrument_str"],
        )
        clips.append(clip)
        if path is None:
            missing[clip.id] = f"no file {folder.name}/audio/{note}.wav"
