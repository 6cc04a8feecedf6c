"""From a model and a data set to a store: plan, resume, run, finish."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from residual_audio import engine as engines
from residual_audio.data.base import Dataset
from residual_audio.extraction.extract_settings import ExtractOptions, ExtractSettings
from residual_audio.extraction.plan import plan_extraction
from residual_audio.extraction.shard_making import is_back, make_shards
from residual_audio.models.clap import AudioTextModel
from residual_audio.progress import SILENT, Progress
from residual_audio.store.lock import writing
from residual_audio.store.reader import Store, open_store
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
            again = writer.failed_shards or is_back(plan.dataset, writer.unreachable)
            if not done or again:
                writer.describe(plan.about)
                writer.write_fixed(plan.fixed)
                job = plan.job(folder, writer.fingerprint, model)
                try:
                    notes, made = make_shards(job, plan, engine, range(len(plan.shards)), progress)
                finally:
                    remove_temporary(folder)  # of workers that were stopped half-way
                writer.finish(plan.dataset.clips, notes)
    store = open_store(folder)
    return Extraction(store, len(store), store.skipped, made)
