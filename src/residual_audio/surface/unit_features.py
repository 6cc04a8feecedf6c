"""A sparse autoencoder of a unit's tokens over the clips of a run: the strength of each feature."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from residual_audio.atlas.autoencoder_files import Autoencoder, read_autoencoder
from residual_audio.capture.keep import parse_keep
from residual_audio.errors import InputError
from residual_audio.extraction.same_data import check_same_data, heard_again
from residual_audio.files import write_safetensors
from residual_audio.passes.loop import heard_as
from residual_audio.progress import SILENT, Progress
from residual_audio.surface.given import ModelLike, given_model
from residual_audio.surface.model import Model
from residual_audio.surface.runs import Run
from residual_audio.surface.token_stream import token_rows
from residual_audio.types import FloatArray

CLIPS_AT_ONCE = 8


def unit_features(
    run: Run,
    autoencoder: Path,
    unit: str,
    model: ModelLike | None = None,
    progress: Progress = SILENT,
) -> Path:
    """A file of features for the atlas: in each clip, every feature at its strongest token.

    The autoencoder is one that was trained on `token_stream(model, …, unit)`.
    """
    held = read_autoencoder(autoencoder)
    loaded = Model.copy_of(given_model(model or run._model or run.store.model_info.name))
    parse_keep(unit, loaded.encoder.sites)
    found = _Over(held, unit)
    ids = [str(name) for name in run.store.clips["id"]]
    data = heard_again(run.store, run.dataset, loaded)
    check_same_data(run.store, data)
    by_id = {clip.id: clip for clip in data.clips}
    progress.step(f"features of {unit}", len(ids))
    for start in range(0, len(ids), CLIPS_AT_ONCE):
        some = ids[start : start + CLIPS_AT_ONCE]
        waves = [data.read(by_id[name], loaded.sample_rate_hz) for name in some]
        cache = loaded.run(
            waves, unit, sample_rate=loaded.sample_rate_hz, long=heard_as(run.store.run_info.long)
        )
        for place in range(len(cache)):
            found.add(token_rows(cache, place, unit).double().numpy())
        progress.advance(len(some))
    path = run.folder / "features" / f"{unit}.safetensors"
    path.parent.mkdir(exist_ok=True)
    about = {"name": f"{autoencoder.resolve().name} on {found}", "clips": json.dumps(ids)}
    write_safetensors(path, {"activations": np.stack(found.strongest)}, about)
    return path


class _Over:
    """What an autoencoder says of the tokens of clips, one clip after another."""

    def __init__(self, held: Autoencoder, unit: str) -> None:
        self.held, self.unit = held, unit
        self.strongest: list[FloatArray] = []
        self.n_tokens, self.n_active, self.left = 0, 0, 0.0
        self.total = np.zeros(held.directions.shape[1])
        self.squares = 0.0

    def add(self, tokens: FloatArray) -> None:
        width = self.held.directions.shape[1]
        if tokens.shape[1] != width:
            raise InputError(
                f"the autoencoder reads vectors of {width}, tokens of {self.unit} have "
                f"{tokens.shape[1]}: it was trained on something else"
            )
        active = self.held.encode(tokens)
        self.strongest.append(active.max(0).astype(np.float32))
        self.n_tokens += len(tokens)
        self.n_active += int((active > 0).sum())
        self.left += float(((tokens - self.held.decode(active, tokens)) ** 2).sum())
        self.total += tokens.sum(0)
        self.squares += float((tokens**2).sum())

    def __str__(self) -> str:
        spread = self.squares - float((self.total**2).sum()) / self.n_tokens
        return (
            f"{self.unit}: {self.held.architecture}, {self.n_active / self.n_tokens:.1f} of "
            f"{len(self.held.directions)} units active in a token, {1 - self.left / spread:.1%} of "
            "the variance explained; a clip has each unit at its strongest token"
        )
