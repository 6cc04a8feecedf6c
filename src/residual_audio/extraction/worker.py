"""One worker of an extraction: reads the clips of a shard, runs the model, writes the shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
import torch
from torch import Tensor

from residual_audio.audio.oddities import PADDED, oddity, padded
from residual_audio.capture.capture_settings import CaptureSettings, SamplePlan
from residual_audio.capture.recorder import Recorder
from residual_audio.data.base import Dataset
from residual_audio.errors import EngineError, InputError, ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.evaluating import evaluating, full_precision
from residual_audio.models.precision import Precision, prepare, products_in
from residual_audio.models.registry import load_model
from residual_audio.models.sounding import pools_where_it_sounds
from residual_audio.passes.loop import Heard, Hearing, Reach, Windows, hear, passing
from residual_audio.passes.sources import reason
from residual_audio.store.shards import ShardNote, ShardRows, Skipped, write_shard
from residual_audio.types import Clip


@dataclass(frozen=True)
class ShardJob:
    """What a worker needs for all shards, on this machine or another."""

    model: AudioTextModel | str
    """A name is loaded where the work is done."""
    device: str
    """`auto` is decided by each worker, which knows what it has."""
    device_type: str
    """What all workers must have: shards of two kinds of device would differ."""
    dataset: Dataset
    """How clips are read; the clips themselves come with each task."""
    n_clips: int
    folder: Path
    run: str
    """Fingerprint of the run."""
    capture: CaptureSettings
    map_shapes: Mapping[str, tuple[int, int, int]]
    hearing: Hearing
    precision: Precision = "float32"


@dataclass(frozen=True)
class ShardTask:
    """One shard: its clips and nothing of the others."""

    index: int
    places: range
    clips: tuple[Clip, ...]
    missing: Mapping[str, str]
    """Those of its clips that have no sound → why."""


@dataclass(frozen=True)
class ShardTasks(Sequence[ShardTask]):
    """Shards of a data set that are to be made, each put together when somebody takes it."""

    dataset: Dataset
    shards: Sequence[range]
    wanted: Sequence[int]

    def __len__(self) -> int:
        return len(self.wanted)

    @overload
    def __getitem__(self, number: int) -> ShardTask: ...

    @overload
    def __getitem__(self, number: slice) -> ShardTasks: ...

    def __getitem__(self, number: int | slice) -> ShardTask | ShardTasks:
        if isinstance(number, slice):
            return replace(self, wanted=self.wanted[number])
        index = self.wanted[number]
        places = self.shards[index]
        clips = tuple(self.dataset.clips[place] for place in places)
        missing = self.dataset.missing
        own = {clip.id: missing[clip.id] for clip in clips if clip.id in missing}
        return ShardTask(index, places, clips, own)


class Worker:
    """The model, loaded once, and what it takes to make shards with it."""

    def __init__(self, job: ShardJob) -> None:
        self.job = job
        model = job.model
        self.model = load_model(model, job.device) if isinstance(model, str) else model
        found = self.model.device.type
        if found != job.device_type:
            raise EngineError(
                f"a worker found the device '{found}' where all must have '{job.device_type}': "
                "say --device cpu, or give every worker a GPU (--gpus-each)"
            )
        self._products = prepare(job.precision, self.model.device)
        plan = SamplePlan(job.n_clips, job.capture, job.map_shapes)
        self.recorder = Recorder(self.model.encoder, plan)
        self.reach = Reach()
        self.on_clips: Callable[[int], None] | None = None
        """Told how many more clips are done."""

    def make_shard(self, task: ShardTask) -> ShardNote:
        """Batches are formed inside the shard, by place: a shard does not depend on any other."""
        places = task.places
        dataset = replace(self.job.dataset, clips=task.clips, missing=task.missing)
        rows, skipped = ShardRows(), dict[int, Skipped]()
        remarks: dict[int, str] = {}
        size = self.job.hearing.batch_size

        def skip(number: int, error: Exception) -> None:
            place = places[number]
            why = reason(error, task.clips[number])
            skipped[place] = Skipped(why, passing(error))
            self._advance(1)

        def cut(number: int) -> Windows:
            return self._cut(dataset, number, places[number], remarks)

        try:
            with ExitStack() as stack:
                stack.enter_context(evaluating(self.model))
                stack.enter_context(full_precision(self.model.device))
                stack.enter_context(
                    products_in(self.job.precision, self.model.device, self._products)
                )
                batches = hear(
                    range(len(places)),
                    cut,
                    self.job.hearing,
                    device=self.model.device,
                    skip=skip,
                    reach=self.reach,
                )
                waves = _in_run(stack.enter_context(closing(batches)), places)
                stream = self.recorder.stream(waves, self.model.features, self.model.joint)
                for clips, arrays in stack.enter_context(closing(stream)):
                    self._check(
                        arrays["embedding/joint"], [task.clips[c - places.start] for c in clips]
                    )
                    rows.add(arrays, len(clips))
                    self._advance(len(clips))
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"{size} clips at a time do not fit into the memory of {self.model.device}: "
                f"use a --batch-size below {size} (with --overwrite)"
            ) from error
        return write_shard(
            self.job.folder, self.job.run, task.index, places, rows, skipped, remarks
        )

    def _cut(self, dataset: Dataset, number: int, place: int, remarks: dict[int, str]) -> Windows:
        rate_hz, long = self.model.sample_rate_hz, self.job.hearing.long
        clip, max_s = dataset.clips[number], self.model.reads_s(long)
        wave = dataset.read(clip, rate_hz, max_s, middle=long == "center")
        odd = oddity(wave, rate_hz)
        spec = self.model.spec
        counts = spec.short == "zero-pad" and not pools_where_it_sounds(self.model)
        if odd is None and counts and padded(len(wave), spec.n_samples):
            odd = PADDED
        if odd is not None:
            remarks[place] = odd
        return self.model.windows(wave, long)

    def _advance(self, n_clips: int) -> None:
        if self.on_clips is not None and n_clips:
            self.on_clips(n_clips)

    def _check(self, joint: np.ndarray, clips: Sequence[Clip]) -> None:
        bad = ~np.isfinite(joint).all(1)
        if bad.any():
            clip = clips[int(bad.argmax())]
            raise ModelError(
                f"'{self.model.name}' gives values that are not finite for the clip '{clip.id}': "
                "its weights are damaged, or this device lacks the precision (try --device cpu)"
            )


def _in_run(batches: Iterable[Heard], places: range) -> Iterator[tuple[Tensor, list[int]]]:
    """Clips by their place in the run, not in the shard: it decides what is sampled."""
    for waves, numbers in batches:
        yield waves, [places[number] for number in numbers]


def make_shard(worker: Worker, task: ShardTask) -> ShardNote:
    return worker.make_shard(task)
