"""IRMAS, training part: 6,705 excerpts of 3 s, the predominant one of 11 instruments."""

from __future__ import annotations

import re
from pathlib import Path

from residual_audio.data.audio_files import LayoutError, below, nfc, walk_audio
from residual_audio.data.base import Card, Dataset
from residual_audio.types import Clip

LABELS = {
    "cel": "cello",
    "cla": "clarinet",
    "flu": "flute",
    "gac": "acoustic guitar",
    "gel": "electric guitar",
    "org": "organ",
    "pia": "piano",
    "sax": "saxophone",
    "tru": "trumpet",
    "vio": "violin",
    "voi": "human singing voice",
}
COUNTS = (388, 505, 451, 637, 760, 682, 721, 626, 577, 580, 778)

CARD = Card(
    name="irmas",
    title="IRMAS: instrument recognition in musical audio signals (training data)",
    task="labels",
    licence="CC BY-NC-SA 3.0",
    citation=(
        "J. J. Bosch, J. Janer, F. Fuhrmann, P. Herrera. A Comparison of Sound Segregation "
        "Techniques for Predominant Instrument Recognition in Musical Audio Signals. ISMIR 2012."
    ),
    url="https://doi.org/10.5281/zenodo.1290750",
    layout="<cel|cla|flu|gac|gel|org|pia|sax|tru|vio|voi>/<name>__<excerpt>.wav",
    download=(
        "Download IRMAS-TrainingData.zip from Zenodo, unpack it, and give IRMAS-TrainingData "
        "(the folder that holds cel/, cla/ …)."
    ),
    n_clips=6705,
    n_classes=11,
    counts=dict(zip(LABELS.values(), COUNTS, strict=True)),
    group=(
        "the song, read from the file name: excerpts of one song differ only in the number after "
        "the last __ . A song used for two instruments has two names and cannot be recognised"
    ),
)


def load(root: Path) -> Dataset:
    home = below(root, *LABELS).parent
    clips = []
    for code, label in LABELS.items():
        folder = home / code
        for path in walk_audio(folder) if folder.is_dir() else ():
            name = nfc(path.relative_to(home).as_posix())
            clips.append(Clip(id=name, path=path, label=label, group=song(name)))
    if not clips:
        raise LayoutError(f"no recordings in the class folders of '{home}'")
    return Dataset(
        name="irmas",
        root=home,
        clips=tuple(clips),
        classes=tuple(LABELS.values()),
        template="This is a sound of {}.",
        card=CARD,
    )


def song(name: str) -> str:
    """`cel/008__[cel][nod][cla]0058__2.wav` → `cel/008__[cel][nod][cla]0058`."""
    return re.sub(r"(__\d+)?\.[^.]*$", "", name)
