"""One worker of an extraction: reads the clips of a shard, runs the model, writes the shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from residual_audio.audio.prefetch import Fetched, prefetch
from residual_audio.audio.windows import LongPolicy
from residual_audio.capture.recorder import Recorder
from residual_audio.capture.settings import CaptureSettings, SamplePlan
from residual_audio.data.base import Dataset
from residual_audio.errors import InputError, ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.registry import load_model
from residual_audio.passes.batches import Batch, features, read_batch
from residual_audio.store.shards import ShardNote, ShardRows, write_shard

_AHEAD = 1
"""Batches ready before the encoder asks, besides those being read: a stall costs no time."""


@dataclass(frozen=True)
class Job:
    """Everything a worker needs, on this machine or another."""

    model: AudioTextModel | str
    """A name is loaded where the work is done."""
    device: str
    dataset: Dataset
    folder: Path
    run: str
    """Fingerprint of the run."""
    shards: tuple[range, ...]
    capture: CaptureSettings
    map_shapes: Mapping[str, tuple[int, int, int]]
    batch_size: int
    long: LongPolicy
    n_threads: int


class Worker:
    """The model, loaded once, and what it takes to make shards with it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        model = job.model
        self.model = load_model(model, job.device) if isinstance(model, str) else model
        n_clips = job.shards[-1].stop if job.shards else 0
        plan = SamplePlan(n_clips, job.capture, job.map_shapes)
        self.recorder = Recorder(self.model.encoder, plan)
        self.on_clips: Callable[[int], None] | None = None
        """Told how many more clips are done."""

    def make_shard(self, index: int) -> ShardNote:
        """Batches are formed inside the shard, by place: a shard does not depend on any other."""
        places = self.job.shards[index]
        rows, skipped = ShardRows(), dict[int, str]()
        size = self.job.batch_size
        batches = [places[i : i + size] for i in range(0, len(places), size)]
        ahead = _AHEAD + self.job.n_threads
        front_end = partial(features, self.model)
        try:
            with ExitStack() as stack:
                read = prefetch(batches, self.read, self.job.n_threads, ahead)
                waves = self._waves(stack.enter_context(closing(read)), skipped)
                stream = self.recorder.stream(waves, front_end, self.model.joint)
                for clips, arrays in stack.enter_context(closing(stream)):
                    self._check(arrays["embedding/joint"], clips)
                    rows.add(arrays, len(clips))
                    self._advance(len(clips))
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"{size} clips at a time do not fit into the memory of {self.model.device}: "
                f"use a --batch-size below {size} (with --overwrite)"
            ) from error
        return write_shard(self.job.folder, self.job.run, index, places, rows, skipped)

    def _waves(
        self, batches: Iterable[Fetched[range, Batch]], skipped: dict[int, str]
    ) -> Iterator[tuple[Tensor, Sequence[int]]]:
        for _, found, error in batches:
            if found is None:
                raise error or ModelError("a batch was lost")
            skipped |= found.skipped
            self._advance(len(found.skipped))
            # rows stand in the order of the clips, also where lengths differ inside a batch
            for group, waves in found.groups:
                yield torch.from_numpy(waves).to(self.model.device), group

    def _advance(self, n_clips: int) -> None:
        if self.on_clips is not None and n_clips:
            self.on_clips(n_clips)

    def read(self, places: range) -> Batch:
        return read_batch(self.model, self.job.dataset, places, self.job.long)

    def _check(self, joint: np.ndarray, clips: Sequence[int]) -> None:
        bad = ~np.isfinite(joint).all(1)
        if bad.any():
            clip = self.job.dataset.clips[clips[int(bad.argmax())]]
            raise ModelError(
                f"'{self.model.name}' gives values that are not finite for the clip '{clip.id}': "
                "its weights are damaged, or this device lacks the precision (try --device cpu)"
            )


def make_shard(worker: Worker, index: int) -> ShardNote:
    return worker.make_shard(index)
