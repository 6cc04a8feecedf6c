"""The frame around the shards: begin or continue a store, write what is fixed, finish it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from residual_audio.audio.windows import LongPolicy
from residual_audio.capture.operators import encoder_operators, joint_operators, window_grids
from residual_audio.capture.settings import CaptureSettings
from residual_audio.capture.texts import embed_texts, gather_texts
from residual_audio.data.base import Dataset
from residual_audio.errors import StoreError
from residual_audio.files import write_bytes
from residual_audio.models.clap import AudioTextModel
from residual_audio.provenance import collect, plain, sha256_file, without_machine_paths
from residual_audio.store import clips as clip_index
from residual_audio.store import manifest as manifests
from residual_audio.store.clips import write_clips
from residual_audio.store.reader import OPERATORS, TEXTS
from residual_audio.store.shards import ShardNote, shard_name, shard_schema
from residual_audio.store.tensors import TensorFile, remove_temporary, write_tensors

_OURS = (manifests.NAME, clip_index.NAME, OPERATORS, TEXTS)


def describe(
    model: AudioTextModel,
    dataset: Dataset,
    capture: CaptureSettings,
    batch_size: int,
    shard_size: int,
    long: LongPolicy,
) -> dict[str, Any]:
    """Everything that decides what is written: a run continues only where all of it is the same."""
    described: dict[str, Any] = plain(
        {
            "model": {
                "family": model.family,
                "sha256": model.sha256,
                "front_end": model.spec.to_dict(),
                "dtype": str(model.dtype),
            },
            "dataset": {
                "name": dataset.name,
                "fingerprint": dataset.fingerprint(),
                "n_clips": len(dataset.clips),
                "template": dataset.template,
            },
            "capture": capture.to_dict(),
            "run": {
                "batch_size": batch_size,
                "shard_size": shard_size,
                "long": long,
                "device": model.device.type,
            },
        }
    )
    return described


def none_readable(dataset: Dataset, why: str) -> StoreError:
    return StoreError(
        f"none of the {len(dataset.clips)} clips of '{dataset.name}' could be read. "
        f"The first: {why}"
    )


class StoreWriter:
    """Writes everything but the shards; holds what will be the manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record: dict[str, Any] = {}

    @property
    def fingerprint(self) -> str:
        return str(self.record["fingerprint"])

    def begin(self, asked: Mapping[str, Any], overwrite: bool = False) -> bool:
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
        self.record = manifests.read_manifest(self.folder)
        different = manifests.changes(self.record["asked"], asked)
        if different:
            raise StoreError(
                f"'{self.folder}' was made with other settings, so it cannot be continued:\n  "
                + "\n  ".join(different)
                + "\nUse another folder, the same settings, or --overwrite to start again"
            )
        return self.record["status"] == "complete" and self._all_there()

    def _clear(self) -> None:
        for name in _OURS:
            (self.folder / name).unlink(missing_ok=True)
        for path in self.folder.glob("shard-*.safetensors"):
            path.unlink()

    def _all_there(self) -> bool:
        """Every listed file exists with its size; `verify` looks at the bytes."""
        for entry in [*self.record["files"], *self.record["shards"]]:
            path = self.folder / entry["name"]
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                return False
        return True

    def describe_run(
        self, model: AudioTextModel, dataset: Dataset, seed: int, n_all: int | None
    ) -> None:
        """What a reader needs besides arrays; `n_all` is the full size where a limit was set."""
        if "sites" in self.record:
            return
        self.record |= {
            "model": {
                "name": without_machine_paths(model.name),
                "family": model.family,
                "sha256": model.sha256,
            },
            "partial": None if n_all is None else {"n_clips": len(dataset.clips), "of": n_all},
            "sites": [list(astuple(site)) for site in model.encoder.sites],
            "logit_scale": float(model.logit_scale),
            "provenance": collect(model, dataset, seed),
        }

    def write_fixed(
        self,
        model: AudioTextModel,
        dataset: Dataset,
        capture: CaptureSettings,
        map_shapes: Mapping[str, tuple[int, int, int]],
    ) -> None:
        """Fixed matrices and embedded texts; kept from before where they are whole."""
        known = {entry["name"]: entry for entry in self.record.get("files", [])}
        kept = all(name in known and self._is(known[name]) for name in (OPERATORS, TEXTS))
        if not kept:
            captions = (text for clip in dataset.clips for text in clip.captions)
            texts = gather_texts(dataset.classes, dataset.template, captions, capture.seed)
            arrays, joint = joint_operators(model.head)
            arrays |= encoder_operators(model.encoder, capture.kinds)
            arrays |= window_grids(model.encoder, map_shapes)
            embedded, missing = embed_texts(model, texts)
            arrays |= embedded
            write_tensors(self.folder / OPERATORS, arrays)
            text = json.dumps(texts.to_dict(), indent=1, ensure_ascii=False)
            write_bytes(self.folder / TEXTS, text.encode())
            self.record["joint"] = joint
            self.record["no_text"] = None if missing is None else without_machine_paths(missing)
            self.record["files"] = [self._entry(OPERATORS), self._entry(TEXTS)]
        self.record["status"] = "running"
        manifests.write_manifest(self.folder, self.record)

    def finish(self, dataset: Dataset, notes: Sequence[ShardNote]) -> None:
        """Clip index, and the manifest with the hash of everything."""
        reasons: list[str | None] = [None] * len(dataset.clips)
        for note in notes:
            for place, why in note.skipped.items():
                reasons[note.first + int(place)] = why
        skipped = [why for why in reasons if why is not None]
        if len(skipped) == len(reasons):
            raise none_readable(dataset, skipped[0])
        write_clips(self.folder / clip_index.NAME, dataset.clips, reasons)
        first = next(note for note in notes if note.ok)
        self.record |= {
            "status": "complete",
            "n_clips": len(reasons),
            "n_ok": len(reasons) - len(skipped),
            "arrays": shard_schema(TensorFile(self.folder / shard_name(first.index))),
            "files": [self._entry(name) for name in (OPERATORS, TEXTS, clip_index.NAME)],
            "shards": [
                {
                    **self._entry(shard_name(note.index)),
                    "n_clips": note.n_clips,
                    "n_ok": len(note.ok),
                }
                for note in notes
            ],
        }
        manifests.write_manifest(self.folder, self.record)

    def _entry(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return {"name": name, "bytes": path.stat().st_size, "sha256": sha256_file(path)}

    def _is(self, entry: Mapping[str, Any]) -> bool:
        path = self.folder / entry["name"]
        return path.is_file() and self._entry(entry["name"]) == dict(entry)
