"""What the steps of one run share: loaded once, and only if a step needs it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio.pipeline.run_settings import RunSettings
from residual_audio.progress import Progress

if TYPE_CHECKING:
    from residual_audio.data.base import Dataset
    from residual_audio.models.clap import AudioTextModel
    from residual_audio.store import Store


class Workshop:
    """Model, data set and store of a run under way."""

    def __init__(self, settings: RunSettings, progress: Progress) -> None:
        self.settings = settings
        self.progress = progress
        self.out: Path = settings.out.expanduser()
        self.out.mkdir(parents=True, exist_ok=True)

    @cached_property
    def model(self) -> AudioTextModel:
        from residual_audio.models.registry import load_model

        return load_model(self.settings.model, self.settings.device)

    @cached_property
    def dataset(self) -> Dataset:
        from residual_audio.data.kept_sounds import KeptSounds
        from residual_audio.data.registry import load_dataset

        asked = self.settings
        whole = load_dataset(asked.dataset, asked.root, **asked.data_options)
        if whole.make is not None:
            whole = replace(whole, make=KeptSounds(whole.make))
        return whole.select(limit=asked.limit, sample=asked.sample, seed=asked.seed)

    @cached_property
    def heard(self) -> Dataset:
        """The data set whose clips are the rows of the store."""
        from residual_audio.extraction.same_data import heard_again

        return heard_again(self.store, self.dataset, self.model)

    @cached_property
    def store(self) -> Store:
        """There after the extraction."""
        from residual_audio.store import open_store

        return open_store(self.out)
