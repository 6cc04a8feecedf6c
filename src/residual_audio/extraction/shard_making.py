"""Making the shards of a run, all of them or some: what is there stays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from residual_audio.data.base import Dataset
from residual_audio.engine import Engine
from residual_audio.extraction.failures import Failures
from residual_audio.extraction.plan import Plan
from residual_audio.extraction.worker import ShardJob, ShardTasks, Worker, make_shard
from residual_audio.progress import Progress
from residual_audio.store.shards import ShardNote, check_shard


def make_shards(
    job: ShardJob, plan: Plan, engine: Engine, wanted: Sequence[int], progress: Progress
) -> tuple[list[ShardNote], int]:
    """Of these shards, keep those that are there and whole, and make the others: their notes in
    order, and how many were made."""
    notes: dict[int, ShardNote] = {}
    shards, dataset = plan.shards, plan.dataset
    for index in wanted:
        places = shards[index]
        note = check_shard(job.folder, job.run, index, places)
        if note is None or note.failed:
            continue
        if not is_back(dataset, [places[i] for i in note.unreachable]):
            notes[index] = note
    tasks = ShardTasks(dataset, shards, [index for index in wanted if index not in notes])

    def set_up_here() -> Worker:
        worker = Worker(job)
        worker.on_clips = progress.advance
        return worker

    elsewhere = plan.settings.where.elsewhere
    progress.step("extracting", sum(len(shards[index]) for index in wanted))
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
    return [notes[index] for index in wanted], len(tasks)


def is_back(dataset: Dataset, places: Sequence[int]) -> bool:
    """Whether a clip whose file could not be opened before can be opened now."""
    for place in places:
        path = dataset.clips[place].path
        with suppress(OSError, ValueError):
            if path is not None and path.is_file():
                path.open("rb").close()
                return True
    return False
