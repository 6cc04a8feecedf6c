"""From a model and a data set to a store: plan, resume, run, finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Unpack

from residual_audio import engine as engines
from residual_audio.data.base import Dataset
from residual_audio.engine import Engine
from residual_audio.extraction.extract_settings import ExtractOptions, ExtractSettings
from residual_audio.extraction.failures import Failures
from residual_audio.extraction.plan import Plan, plan_extraction
from residual_audio.extraction.worker import ShardJob, ShardTasks, Worker, make_shard
from residual_audio.models.clap import AudioTextModel
from residual_audio.progress import SILENT, Progress
from residual_audio.store.lock import writing
from residual_audio.store.reader import Store, open_store
from residual_audio.store.shards import ShardNote, check_shard
from residual_audio.store.tensors import remove_temporary
from residual_audio.store.writer import StoreWriter


@dataclass(frozen=True)
class Extraction:
    """What an extraction left behind."""

    store: Store
    n_ok: int
    skipped: dict[str, str]
    """Clip id → reason."""
    n_shards_made: int
    """Shards this run made; the others were there already."""

    @property
    def reasons(self) -> Counter[str]:
        return Counter(self.skipped.values())


def extract(
    model: AudioTextModel | str,
    dataset: Dataset | str,
    out: str | Path,
    *,
    progress: Progress = SILENT,
    **options: Unpack[ExtractOptions],
) -> Extraction:
    """Run the model over the data set and keep what its heads did in `out/store`.

    Keywords are those of `ExtractSettings`: `root`, `capture`, `limit`, `long` … Resumes by
    default: finished shards stay, and the result is the same as without the stop. A store of
    another model, data set or setting is refused, unless `overwrite`.
    """
    settings = ExtractSettings(**options)
    with engines.open_engine(settings.where) as engine:
        plan = plan_extraction(model, dataset, settings, engine.gpus_each)
        folder = Path(out).expanduser().resolve() / "store"
        progress.keeps(f"finished shards are kept in {out}, the same command continues")
        folder.mkdir(parents=True, exist_ok=True)
        with writing(folder):
            writer = StoreWriter(folder)
            made = 0
            done = writer.begin(plan.asked(), settings.overwrite)
            again = writer.failed_shards or _back(plan.dataset, writer.unreachable)
            if not done or again:
                writer.describe(plan.about)
                writer.write_fixed(plan.fixed)
                job = plan.job(folder, writer.fingerprint, model)
                try:
                    notes, made = _make_shards(job, plan, engine, progress)
                finally:
                    remove_temporary(folder)  # of workers that were stopped half-way
                writer.finish(plan.dataset.clips, notes)
    store = open_store(folder)
    return Extraction(store, len(store), store.skipped, made)


def _make_shards(
    job: ShardJob, plan: Plan, engine: Engine, progress: Progress
) -> tuple[list[ShardNote], int]:
    """Keep the shards that are there and whole, make the others."""
    notes: dict[int, ShardNote] = {}
    shards, dataset = plan.shards, plan.dataset
    for index, places in enumerate(shards):
        note = check_shard(job.folder, job.run, index, places)
        if note is None or note.failed:
            continue
        if not _back(dataset, [places[i] for i in note.unreachable]):
            notes[index] = note
    tasks = ShardTasks(dataset, shards, [i for i in range(len(shards)) if i not in notes])

    def set_up_here() -> Worker:
        worker = Worker(job)
        worker.on_clips = progress.advance
        return worker

    elsewhere = plan.settings.where.elsewhere
    progress.step("extracting", job.n_clips)
    progress.advance(sum(note.n_clips for note in notes.values()))
    failures = Failures(len(notes))
    for done in engine.run(tasks, partial(Worker, job) if elsewhere else set_up_here, make_shard):
        if done.error is not None:
            failures.add(tasks[done.number], done.error)
            continue
        failures.good()
        notes[done.result.index] = done.result
        if elsewhere:
            progress.advance(done.result.n_clips)
    notes |= failures.notes(job.folder, job.run)
    return [notes[index] for index in range(len(shards))], len(tasks)


def _back(dataset: Dataset, places: Sequence[int]) -> bool:
    """Whether a clip whose file could not be opened before can be opened now."""
    for place in places:
        path = dataset.clips[place].path
        with suppress(OSError, ValueError):
            if path is not None and path.is_file():
                path.open("rb").close()
                return True
    return False
