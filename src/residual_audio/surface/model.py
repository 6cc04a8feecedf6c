"""The model that people hold in their hands: everything of `AudioTextModel`, and the verbs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from residual_audio.audio.windows import LongPolicy
from residual_audio.errors import InputError
from residual_audio.models import registry
from residual_audio.models.clap import AudioTextModel
from residual_audio.passes.embed import embed_items
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import AudioInput, cut_inputs
from residual_audio.progress import SILENT, Progress


class Model(AudioTextModel):
    """A loaded model with the verbs of this package as methods."""

    @classmethod
    def of(cls, model: AudioTextModel) -> Model:
        """The same model, sharing its weights, with the verbs."""
        return cls(
            name=model.name,
            family=model.family,
            front_end=model.front_end,
            encoder=model.encoder,
            head=model.head,
            text=model.text,
            logit_scale=model.logit_scale,
            sha256=model.sha256,
        )

    def embed_audio(
        self,
        items: Sequence[AudioInput],
        *,
        batch_size: int = 8,
        long: LongPolicy = "first",
        n_threads: int = 2,
        progress: Progress = SILENT,
    ) -> npt.NDArray[np.float32]:
        """Files or waveforms → unit vectors [n, d]; the same input always gives the same vector.

        A file that cannot be read is an error that names it.
        """
        if isinstance(items, str | Path | np.ndarray):
            raise InputError("embed_audio takes a list of files or waveforms, not a single one")
        cut, hearing = cut_inputs(self, long), Hearing(long, batch_size, n_threads)
        return embed_items(self, items, cut, hearing, strict=True, progress=progress).vectors


def load_model(name: str, device: str | torch.device = "auto") -> Model:
    """A model by name, proved on a dummy clip; see `residual-audio models list`."""
    return Model.of(registry.load_model(name, device))
