"""What a pass of the model left for the page: sounds, mel pictures and responses by patch.

`RUN/atlas-data/` holds `listing.json`, `sounds/*.ogg` and `pictures.safetensors`; it is written by
the run (`pipeline.heard_clips`). Without it the page still opens, and says what is missing.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import numpy as np
from safetensors import SafetensorError, safe_open

from residual_audio.errors import InputError
from residual_audio.files import belongs_to, read_json_object
from residual_audio.seals import prove_file
from residual_audio.types import FloatArray

FOLDER = "atlas-data"
LISTING = "listing.json"
PICTURES = "pictures.safetensors"
SOUNDS = "sounds"
MISSING = (
    "no sounds, mel pictures or responses by patch: they need the model and the sounds "
    "(`residual-audio run` or `demo` writes them)"
)


class AskedText(TypedDict):
    """A text whose score with a clip is followed over time."""

    text: str
    kind: str
    """answer, caption"""
    score: float


@dataclass(frozen=True)
class Media:
    """Sounds and pictures by row of the store; empty where there are none."""

    folder: Path
    sounds: dict[int, str] = field(default_factory=dict)
    """Row → file name."""
    seconds: float = 0.0
    """Length of what the model hears of a clip."""
    pictures: dict[str, FloatArray] = field(default_factory=dict)
    asked: dict[int, list[AskedText]] = field(default_factory=dict)
    """Row → texts whose score was followed over time."""

    def times(self, row: int) -> tuple[list[AskedText], FloatArray] | None:
        """Texts, and [text, time step]: what each moment of a clip adds to its score with each."""
        found = self.pictures.get(f"times/{row}")
        asked = self.asked.get(row, [])
        return None if found is None or len(found) != len(asked) else (asked, found)

    def mel(self, row: int) -> FloatArray | None:
        """[time, mel] in the units of the front-end."""
        return self.pictures.get(f"mel/{row}")

    def response(self, head: str, component: int, row: int) -> FloatArray | None:
        """[time, frequency]: what each place adds to the clip's coordinate along a component."""
        rows = self.pictures.get(f"rows/{head}/{component}")
        if rows is None:
            return None
        place = np.flatnonzero(rows == row)
        return self.pictures[f"response/{head}/{component}"][place[0]] if len(place) else None

    def sound(self, row: int) -> str | None:
        """As a data URI."""
        name = self.sounds.get(row)
        if name is None:
            return None
        data = prove_file(self.folder / SOUNDS / Path(name).name).read_bytes()
        return f"data:audio/ogg;base64,{base64.b64encode(data).decode('ascii')}"


def read_media(run: Path, clip_ids: list[str]) -> Media:
    """What lies in `run/atlas-data`; rows whose clip is another one by now are left out."""
    folder = run / FOLDER
    if not (folder / LISTING).is_file():
        return Media(folder)
    listing = read_json_object(prove_file(folder / LISTING))
    sounds = {
        int(entry["row"]): str(entry["file"])
        for entry in listing.get("clips", [])
        if int(entry["row"]) < len(clip_ids)
        and clip_ids[int(entry["row"])] == entry["id"]
        and belongs_to(run, folder / SOUNDS / Path(str(entry["file"])).name)
    }
    asked = {int(entry["row"]): entry.get("asked", []) for entry in listing.get("clips", [])}
    path = folder / PICTURES
    pictures: dict[str, FloatArray] = {}
    if path.is_file() and sounds:
        try:
            with safe_open(prove_file(path), "numpy") as file:
                pictures = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise InputError(f"'{path}' cannot be read: {error}") from error
    return Media(folder, sounds, float(listing.get("seconds", 0.0)), pictures, asked)
