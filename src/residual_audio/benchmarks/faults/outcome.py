"""What a campaign of faults found: how often it tried, how often the promise held.

Campaigns of hours are kept while they go: after each case in a file of its own, so that the same
command goes on where it was stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from residual_audio import __version__
from residual_audio.errors import InputError
from residual_audio.files import read_json_object, write_json
from residual_audio.progress import SILENT, Progress
from residual_audio.results import slug

SHOWN = 20
_BETWEEN_S = 5.0
"""A file is written at most so often, and at the end."""


@dataclass(frozen=True)
class CampaignSettings:
    """How campaigns are run, whatever they do."""

    quick: bool = False
    """A few cases of each."""
    seed: int = 0
    keep: Path | None = None
    """Folder in which the outcomes are kept."""
    progress: Progress = SILENT

    def campaign(self, name: str, promise: str) -> Campaign:
        """A new one, or one that was begun before with the same settings."""
        found = Campaign(name, promise, asked=self)
        if self.keep is None or not found.file.is_file():
            return found
        kept = read_json_object(found.file)
        if any(kept.get(key) != value for key, value in found.identity.items()):
            raise InputError(
                f"'{found.file}' was begun with other settings: give another --keep, or remove it"
            )
        for key in ("tried", "held", "broken", "complete", "seconds"):
            setattr(found, key, kept[key])
        return found


@dataclass
class Campaign:
    """One kind of fault."""

    name: str
    promise: str
    tried: int = 0
    held: int = 0
    broken: list[str] = field(default_factory=list)
    """The first cases in which the promise did not hold."""
    complete: bool = False
    seconds: float = 0.0
    asked: CampaignSettings = field(default_factory=CampaignSettings, repr=False)
    _at: int = 0
    _saved: float = 0.0

    def attempt(self, case: Callable[[], str | None]) -> None:
        """One more case, which says how the promise was broken; one tried before is not tried."""
        self._at += 1
        if self._at <= self.tried:
            return
        begun = time.monotonic()
        problem = case()
        self.tried += 1
        self.seconds = round(self.seconds + time.monotonic() - begun, 3)
        if problem is None:
            self.held += 1
        elif len(self.broken) < SHOWN:
            self.broken.append(problem)
        if time.monotonic() - self._saved > _BETWEEN_S:
            self._save()

    def end(self) -> Campaign:
        """All cases were tried."""
        self.complete = True
        self._save()
        return self

    @property
    def next_case(self) -> int:
        """Number of the first case that was not tried."""
        return self.tried

    @property
    def file(self) -> Path:
        return (self.asked.keep or Path()) / f"{slug(self.name)}.json"

    @property
    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "quick": self.asked.quick, "seed": self.asked.seed}

    def record(self) -> dict[str, Any]:
        """As it is printed and kept."""
        own = asdict(self, dict_factory=_without_private)
        return {**self.identity, **own, "version": __version__}

    def _save(self) -> None:
        self._saved = time.monotonic()
        if self.asked.keep is not None:
            group = self.name.partition(":")[0].replace(" ", "-")
            command = f"residual-audio bench faults --campaign {group} --keep FOLDER"
            write_json(self.file, {**self.record(), "command": command})


def _without_private(items: list[tuple[str, object]]) -> dict[str, object]:
    return {key: value for key, value in items if key != "asked" and not key.startswith("_")}


STANDARD = CampaignSettings()
