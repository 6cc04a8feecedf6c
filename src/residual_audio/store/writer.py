"""The frame around the shards: begin or continue a store, write what is fixed, finish it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from residual_audio.errors import StoreError
from residual_audio.files import write_bytes
from residual_audio.provenance import sha256_file
from residual_audio.store import clips as clip_index
from residual_audio.store import manifest as manifests
from residual_audio.store.clips import write_clips
from residual_audio.store.reader import OPERATORS, TEXTS
from residual_audio.store.shards import ShardNote, shard_name, shard_schema
from residual_audio.store.tensors import Array, TensorFile, remove_temporary, write_tensors
from residual_audio.types import Clip

_OURS = (manifests.NAME, clip_index.NAME, OPERATORS, TEXTS)


@dataclass(frozen=True)
class Fixed:
    """What a store holds once, whatever the clips."""

    arrays: Mapping[str, Array]
    """Fixed matrices and embedded texts."""
    texts: Mapping[str, Any]
    """Prompt, classes, dictionary and where its entries are from."""
    joint: Mapping[str, Any] | None
    """Kind and configuration of the joint head; None where it does not read the latent."""
    no_text: str | None
    """Why no text is embedded."""


class StoreWriter:
    """Writes everything but the shards; holds what will be the manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record: dict[str, Any] = {}

    @property
    def fingerprint(self) -> str:
        return str(self.record["fingerprint"])

    def begin(self, asked: Mapping[str, object], overwrite: bool = False) -> bool:
        """Start, or continue what is there; True where there is nothing left to do."""
        remove_temporary(self.folder)
        if overwrite:
            self._clear()
        if not (self.folder / manifests.NAME).is_file():
            if any(self.folder.glob("shard-*.safetensors")):
                raise StoreError(
                    f"'{self.folder}' has shards but no {manifests.NAME}: nothing says what they "
                    "are. Use another folder, or --overwrite"
                )
            self.record = {
                "status": "running",
                "fingerprint": manifests.fingerprint(asked),
                "asked": dict(asked),
            }
            return False
        self.join(asked)
        return self.record["status"] == "complete" and all(
            self._is(entry) for entry in [*self.record["files"], *self.record["shards"]]
        )

    def join(self, asked: Mapping[str, object]) -> None:
        """Take up what somebody began, changing nothing; refuse what was begun otherwise."""
        self.record = manifests.read_manifest(self.folder)
        if self.record["schema_version"] != manifests.SCHEMA_VERSION:
            raise StoreError(
                f"'{self.folder}' was made by an earlier version: it can be read, not continued. "
                "Use another folder, or --overwrite to start again"
            )
        different = manifests.changes(self.record["asked"], asked)
        if different:
            raise StoreError(
                f"'{self.folder}' was made with other settings, so it cannot be continued:\n  "
                + "\n  ".join(different)
                + "\nUse another folder, the same settings, or --overwrite to start again"
            )

    @property
    def unreachable(self) -> tuple[int, ...]:
        """Places of clips whose files could not be opened when the store was finished."""
        return tuple(self.record.get("unreachable", ()))

    @property
    def failed_shards(self) -> tuple[int, ...]:
        """Shards that could not be made when the store was finished."""
        return tuple(self.record.get("failed_shards", ()))

    def describe(self, about: Callable[[], Mapping[str, object]]) -> None:
        """What a reader needs besides arrays; kept from before where it is there."""
        if "sites" not in self.record:
            self.record |= about()

    def write_fixed(self, make: Callable[[], Fixed]) -> None:
        """Fixed matrices and embedded texts; kept from before where they are whole."""
        known = {entry["name"]: entry for entry in self.record.get("files", [])}
        kept = all(name in known and self._is(known[name]) for name in (OPERATORS, TEXTS))
        if not kept:
            fixed = make()
            write_tensors(self.folder / OPERATORS, dict(fixed.arrays))
            text = json.dumps(fixed.texts, indent=1, ensure_ascii=False)
            write_bytes(self.folder / TEXTS, text.encode())
            self.record["joint"] = fixed.joint
            self.record["no_text"] = fixed.no_text
            self.record["files"] = [self._entry(OPERATORS), self._entry(TEXTS)]
        self.record["status"] = "running"
        manifests.write_manifest(self.folder, self.record)

    def finish(self, clips: Sequence[Clip], notes: Sequence[ShardNote]) -> None:
        """Clip index, and the manifest with the hash of everything."""
        reasons: list[str | None] = [None] * len(clips)
        for note in notes:
            for place, why in note.skipped.items():
                reasons[note.first + int(place)] = why
        skipped = [why for why in reasons if why is not None]
        if len(skipped) == len(reasons):
            raise none_readable(len(reasons), self.record["asked"]["dataset"]["name"], skipped[0])
        windows = self.record["asked"]["run"]["long"] == "tile"
        write_clips(self.folder / clip_index.NAME, clips, reasons, windows)
        odd = {
            clips[note.first + int(place)].id: what
            for note in notes
            for place, what in note.remarks.items()
        }
        first = next(note for note in notes if note.ok)
        self.record |= {
            "status": "complete",
            "n_clips": len(reasons),
            "n_ok": len(reasons) - len(skipped),
            "remarks": odd,
            "unreachable": [note.first + i for note in notes for i in note.unreachable],
            "failed_shards": [note.index for note in notes if note.failed],
            "arrays": shard_schema(TensorFile(self.folder / shard_name(first.index))),
            "files": [self._entry(name) for name in (OPERATORS, TEXTS, clip_index.NAME)],
            "shards": [
                {
                    **self._entry(shard_name(note.index)),
                    "n_clips": note.n_clips,
                    "n_ok": len(note.ok),
                    "seal": note.seal,
                }
                for note in notes
            ],
        }
        manifests.write_manifest(self.folder, self.record)

    def _clear(self) -> None:
        for name in _OURS:
            (self.folder / name).unlink(missing_ok=True)
        for path in self.folder.glob("shard-*.safetensors"):
            path.unlink()

    def _entry(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return {"name": name, "bytes": path.stat().st_size, "sha256": sha256_file(path)}

    def _is(self, entry: Mapping[str, Any]) -> bool:
        """Whether a file is there as it was written."""
        path = self.folder / entry["name"]
        return path.is_file() and self._entry(entry["name"]).items() <= entry.items()


def none_readable(n_clips: int, dataset: str, why: str) -> StoreError:
    """No clip at all could be heard."""
    return StoreError(f"none of the {n_clips} clips of '{dataset}' could be read. The first: {why}")
