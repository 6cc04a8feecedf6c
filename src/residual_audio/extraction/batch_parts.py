"""An extraction in parts, for batch systems: a plan, parts in any order, and the end of it.

    residual-audio extract … --out RUN --plan
    residual-audio extract … --out RUN --part 3/8      # on any machine, repeated at will
    residual-audio extract … --out RUN --finish

Part i of n makes the shards i, i + n, i + 2n … that are not there yet, under a lock of its own. The
folder is all they share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from residual_audio import engine as engines
from residual_audio.data.base import Dataset
from residual_audio.engine import Engine
from residual_audio.errors import InputError, StoreError
from residual_audio.extraction.extract_settings import ExtractOptions, ExtractSettings
from residual_audio.extraction.extraction import Extraction
from residual_audio.extraction.plan import Plan, plan_extraction
from residual_audio.extraction.shard_making import make_shards
from residual_audio.models.clap import AudioTextModel
from residual_audio.progress import SILENT, Progress
from residual_audio.store.lock import writing, writing_part
from residual_audio.store.manifest import NAME
from residual_audio.store.reader import open_store
from residual_audio.store.shards import check_shard
from residual_audio.store.writer import StoreWriter


@dataclass(frozen=True)
class RunPart:
    """Part `number` of `of`, counted from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> RunPart:
        found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        part = cls(int(found[1]), int(found[2])) if found else None
        if part is None or not 1 <= part.number <= part.of:
            raise InputError(f"'{text}' is no part: write 1/8 to 8/8 for one of eight")
        return part

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def of_shards(self, n_shards: int) -> range:
        """Spread over the run, so that parts are alike where a data set is not."""
        return range(self.number - 1, n_shards, self.of)


@dataclass(frozen=True)
class Planned:
    """What is to be done."""

    n_clips: int
    n_shards: int


@dataclass(frozen=True)
class PartMade:
    """What a part has done."""

    n_shards: int
    """Of this part."""
    n_made: int
    """The others were there already."""
    n_clips: int
    skipped: dict[str, str]
    """Clip id → reason."""


def plan_parts(
    model: AudioTextModel | str,
    dataset: Dataset | str,
    out: str | Path,
    **options: Unpack[ExtractOptions],
) -> Planned:
    """Write down what is to be done, and the fixed matrices; a plan that is there stays."""
    with _opened(model, dataset, out, options) as (plan, folder, _):
        folder.mkdir(parents=True, exist_ok=True)
        with writing(folder):
            writer = StoreWriter(folder)
            if not writer.begin(plan.asked(), plan.settings.overwrite):
                writer.describe(plan.about)
                writer.write_fixed(plan.fixed)
        return Planned(len(plan.dataset.clips), len(plan.shards))


def extract_part(
    model: AudioTextModel | str,
    dataset: Dataset | str,
    out: str | Path,
    part: RunPart,
    *,
    progress: Progress = SILENT,
    **options: Unpack[ExtractOptions],
) -> PartMade:
    """Make the shards of one part of a planned run."""
    if options.get("overwrite"):
        raise InputError("a part overwrites nothing: use --overwrite with --plan")
    with _opened(model, dataset, out, options) as (plan, folder, engine):
        if not (folder / NAME).is_file():
            raise StoreError(f"'{out}' has no plan yet: run the same command with --plan first")
        progress.keeps(f"finished shards are kept in {out}, the same part continues")
        wanted = part.of_shards(len(plan.shards))
        with writing_part(folder, f"{part.number}-of-{part.of}"):
            writer = StoreWriter(folder)
            writer.join(plan.asked())
            job = plan.job(folder, writer.fingerprint, model)
            notes, made = make_shards(job, plan, engine, wanted, progress)
        clips = plan.dataset.clips
        skipped = {
            clips[note.first + int(place)].id: why
            for note in notes
            for place, why in note.skipped.items()
        }
        return PartMade(len(wanted), made, sum(note.n_clips for note in notes), skipped)


def finish_parts(
    model: AudioTextModel | str,
    dataset: Dataset | str,
    out: str | Path,
    **options: Unpack[ExtractOptions],
) -> Extraction:
    """Read every shard, and write clip index and manifest; with shards missing, say which."""
    with _opened(model, dataset, out, options) as (plan, folder, _):
        folder.mkdir(parents=True, exist_ok=True)
        with writing(folder):
            writer = StoreWriter(folder)
            if not writer.begin(plan.asked()):
                found = [
                    check_shard(folder, writer.fingerprint, index, places)
                    for index, places in enumerate(plan.shards)
                ]
                missing = [str(index) for index, note in enumerate(found) if note is None]
                if missing:
                    raise StoreError(_lacks(out, missing, len(found)))
                writer.finish(plan.dataset.clips, [note for note in found if note is not None])
    store = open_store(folder)
    return Extraction(store, len(store), store.skipped, 0)


def _lacks(out: str | Path, missing: list[str], n_shards: int) -> str:
    shown = ", ".join(missing[:10]) + (" …" if len(missing) > 10 else "")
    return (
        f"'{out}' cannot be finished: {len(missing)} of {n_shards} shards are not there or "
        f"damaged (counted from 0: {shown}). Run the parts again that they belong to; part i of n "
        "has the shards i − 1, i − 1 + n …"
    )


@contextmanager
def _opened(
    model: AudioTextModel | str, dataset: Dataset | str, out: str | Path, options: ExtractOptions
) -> Iterator[tuple[Plan, Path, Engine]]:
    settings = ExtractSettings(**options)
    with engines.open_engine(settings.where) as engine:
        plan = plan_extraction(model, dataset, settings, engine.gpus_each)
        yield plan, Path(out).expanduser().resolve() / "store", engine
