"""From a model and a data set to a store: plan, resume, run, finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from residual_audio import engine as engines
from residual_audio.audio.windows import LongPolicy
from residual_audio.capture.recorder import fit_maps, probe_maps
from residual_audio.capture.settings import CaptureSettings
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError
from residual_audio.extraction.worker import ShardJob, Worker, make_shard
from residual_audio.extraction.writer import StoreWriter, describe, none_readable
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Features
from residual_audio.models.registry import load_model
from residual_audio.passes.loop import Hearing, hear
from residual_audio.passes.sources import cut_clips, reason
from residual_audio.store.lock import writing
from residual_audio.store.reader import Store, open_store
from residual_audio.store.shards import ShardNote, check_shard, shard_ranges
from residual_audio.store.tensors import remove_temporary

Progress = Callable[[int, int], None]
"""Called with clips done and clips in all."""


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
    root: str | Path | None = None,
    capture: Iterable[str] | str = ("heads",),
    limit: int | None = None,
    batch_size: int = 8,
    shard_size: int = 128,
    device: str = "auto",
    long: LongPolicy = "first",
    seed: int = 0,
    n_threads: int = 2,
    engine: str = "local",
    processes: int = 1,
    ray_address: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    sample: dict[str, Any] | None = None,
) -> Extraction:
    """Run the model over the data set and keep what its heads did in `out/store`.

    Resumes by default: finished shards stay, and the result is the same as without the stop. A
    store of another model, data set or setting is refused, unless `overwrite`. `sample` sets the
    sizes of the declared samples (`n_maps`, `n_token_clips`, `token_grid`).
    """
    if batch_size < 1 or shard_size < 1:
        raise InputError(f"batch size {batch_size} and shard size {shard_size} must be positive")
    if long == "tile":
        raise InputError(
            "a store has one row a clip: 'tile' makes several, use 'first' or 'center'"
        )
    settings = CaptureSettings.of(capture, seed=seed, **(sample or {}))
    loaded = load_model(model, device) if isinstance(model, str) else model
    full = load_dataset(dataset, root) if isinstance(dataset, str) else dataset
    chosen = full if limit is None else full.select(limit=limit)
    if not len(chosen.clips):
        raise InputError(f"'{chosen.name}' has no clips to extract")
    shapes: dict[str, tuple[int, int, int]] = {}
    if "attention" in settings.kinds:
        shapes = probe_maps(loaded.encoder, _first_features(loaded, chosen, long))
        settings = fit_maps(settings, shapes)
    asked = describe(loaded, chosen, settings, batch_size, shard_size, long)
    shards = tuple(shard_ranges(len(chosen.clips), shard_size))
    folder = Path(out).expanduser().resolve() / "store"
    folder.mkdir(parents=True, exist_ok=True)
    with writing(folder):
        writer = StoreWriter(folder)
        made = 0
        if not writer.begin(asked, overwrite):
            writer.describe_run(loaded, chosen, seed, None if chosen is full else len(full.clips))
            writer.write_fixed(loaded, chosen, settings, shapes)
            elsewhere = engine != "local" or processes > 1
            job = ShardJob(
                model=model if elsewhere else loaded,
                device=device,
                dataset=chosen,
                folder=folder,
                run=writer.fingerprint,
                shards=shards,
                capture=settings,
                map_shapes=shapes,
                hearing=Hearing(long, batch_size, n_threads),
            )
            gpus = 1.0 if loaded.device.type == "cuda" else 0.0
            try:
                notes, made = _make_shards(job, engine, processes, ray_address, gpus, progress)
            finally:
                remove_temporary(folder)  # of workers that were stopped half-way
            writer.finish(chosen, notes)
    store = open_store(folder)
    return Extraction(store, len(store), store.skipped, made)


def _first_features(model: AudioTextModel, dataset: Dataset, long: LongPolicy) -> Features:
    """Features of the first clip that can be heard."""
    reasons: list[str] = []

    def skip(place: int, error: Exception) -> None:
        reasons.append(reason(error, dataset.clips[place]))

    cut = cut_clips(model, dataset, long)
    hearing = Hearing(long, batch_size=1, n_threads=0)
    with torch.inference_mode():
        for waves, _ in hear(dataset.clips, cut, hearing, device=model.device, skip=skip):
            return model.features(waves)
    raise none_readable(dataset, reasons[0])


def _make_shards(
    job: ShardJob,
    engine: str,
    processes: int,
    address: str | None,
    gpus_each: float,
    progress: Progress | None,
) -> tuple[list[ShardNote], int]:
    """Keep the shards that are there and whole, make the others."""
    total = job.shards[-1].stop
    notes: dict[int, ShardNote] = {}
    for index, places in enumerate(job.shards):
        note = check_shard(job.folder, job.run, index, places)
        if note is not None:
            notes[index] = note
    missing = [index for index in range(len(job.shards)) if index not in notes]
    done = sum(note.n_clips for note in notes.values())

    def advance(n_clips: int) -> None:
        nonlocal done
        done += n_clips
        if progress is not None:
            progress(done, total)

    def set_up_here() -> Worker:
        worker = Worker(job)
        worker.on_clips = advance
        return worker

    advance(0)
    here = engine == "local" and processes == 1
    found = engines.run(
        missing,
        set_up_here if here else partial(Worker, job),
        make_shard,
        engine=engine,
        processes=processes,
        address=address,
        gpus_each=gpus_each,
    )
    for index, note in found:
        notes[index] = note
        if not here:
            advance(note.n_clips)
    return [notes[index] for index in range(len(job.shards))], len(missing)
