"""A study of generated music: a JSON file that names the systems and what there is of each.

Paths are relative to the file:

    {"reference": {"audio": "ref/", "midi": "ref-midi/"},
     "systems": {"A": {"audio": "a/", "midi": "a-midi/", "prompts": "prompts.csv"}, "B": {…}},
     "ratings": "mushra.csv", "questionnaires": "asked.csv"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from residual_audio.errors import InputError
from residual_audio.files import read_json

KINDS = ("audio", "midi", "prompts")


@dataclass(frozen=True)
class MusicStudy:
    """What a study file asks for, with paths made absolute."""

    reference: Mapping[str, Path]
    systems: Mapping[str, Mapping[str, Path]]
    ratings: Path | None
    questionnaires: Path | None = None

    @property
    def needs_model(self) -> bool:
        return any("audio" in parts for parts in self.systems.values())


def read_music_study(path: Path) -> MusicStudy:
    """Read and check; every path must exist."""
    document = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("systems"), dict):
        raise InputError(f"'{path}' needs an object 'systems' that names each system's folders")
    systems = {
        str(name): _paths(path, given, f"system '{name}'")
        for name, given in document["systems"].items()
    }
    if not systems:
        raise InputError(f"'{path}' names no system")
    ratings, asked = (_file(path, document, name) for name in ("ratings", "questionnaires"))
    reference = _paths(path, document.get("reference", {}), "the reference")
    return MusicStudy(reference, systems, ratings, asked)


def _file(path: Path, document: Mapping[str, object], name: str) -> Path | None:
    given = document.get(name)
    if not given:
        return None
    found = path.parent / str(given)
    if not found.is_file():
        raise InputError(f"'{path}': the {name} '{given}' are not there")
    return found


def _paths(path: Path, given: object, whose: str) -> dict[str, Path]:
    if not isinstance(given, dict):
        raise InputError(f"'{path}': {whose} must be an object with audio, midi or prompts")
    unknown = sorted(set(given) - set(KINDS))
    if unknown:
        raise InputError(f"'{path}': {whose} has '{unknown[0]}', known are {', '.join(KINDS)}")
    found = {name: path.parent / str(value) for name, value in given.items()}
    for name, one in found.items():
        if not one.exists():
            raise InputError(f"'{path}': {name} of {whose} is not there: '{given[name]}'")
    return found
