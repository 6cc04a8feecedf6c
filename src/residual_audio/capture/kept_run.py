"""One run of a model over sounds: everything that was asked for, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from residual_audio.capture.cache import Grid, Values
from residual_audio.capture.direct_pools import Direct
from residual_audio.capture.keep import Keep
from residual_audio.capture.kept_values import Keeper
from residual_audio.engine.cores import stream_clips
from residual_audio.errors import InputError, ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Encoded, Encoder
from residual_audio.models.evaluating import evaluating, full_precision
from residual_audio.passes.loop import Cut, Hearing, hear
from residual_audio.passes.places import running
from residual_audio.progress import SILENT, Progress
from residual_audio.types import FloatArray

Item = TypeVar("Item")
MAX_BYTES = 8_000_000_000
"""More than this is not kept in memory."""


@dataclass(frozen=True)
class Ran:
    """What a run gave, one row a clip that could be heard."""

    places: tuple[int, ...]
    latent: FloatArray
    embedding: FloatArray
    values: Mapping[str, Values]
    grids: Mapping[str, Grid]
    skipped: Mapping[int, Exception]


def run_clips(
    model: AudioTextModel,
    items: Sequence[Item],
    cut: Cut[Item],
    keep: Keep,
    hearing: Hearing,
    *,
    strict: bool = True,
    progress: Progress = SILENT,
) -> Ran:
    """Each item once, its one window; what cannot be heard raises, or is skipped with its reason"""
    if hearing.long == "tile":
        raise InputError("a cache has one row a clip: 'tile' makes several, use first or center")
    skipped: dict[int, Exception] = {}
    some = _one_batch(model, keep, len(items))
    places: list[int] = []
    parts: list[dict[str, FloatArray]] = []
    grids: dict[str, Grid] = {}
    n_bytes = 0
    progress.step("running", len(items))
    skip = None if strict else skipped.__setitem__
    heard = hear(items, cut, hearing, device=model.device, skip=skip)
    with torch.inference_mode(), evaluating(model), closing(heard) as batches:
        for here, found, where in stream_clips(some, batches):
            places += here
            parts.append(found)
            grids |= where
            n_bytes += sum(value.nbytes for value in found.values())
            _check_bytes(n_bytes, len(places), len(items))
            progress.advance(len(here))
    if not places:
        first = next(iter(skipped.values()), "there is no clip")
        raise InputError(f"none of {len(items)} clips could be heard: {first}")
    values = {name: _joined([part.pop(name) for part in parts]) for name in list(parts[0])}
    latent, embedding = values.pop("latent"), values.pop("embedding")
    assert not isinstance(latent, tuple)
    assert not isinstance(embedding, tuple)
    return Ran(tuple(places), latent, embedding, values, grids, skipped)


_Batch = tuple[Sequence[int], dict[str, FloatArray], dict[str, Grid]]
"""Places, what was kept there, and where its tokens lie."""


def _one_batch(
    model: AudioTextModel, keep: Keep, n_items: int
) -> Callable[[Tensor, Sequence[int]], _Batch]:
    direct = Direct(model.encoder) if keep.contributions else None

    def some(waves: Tensor, here: Sequence[int]) -> _Batch:
        keeper = Keeper(keep, None if direct is None else direct.twin())
        with running(n_items, here), full_precision(waves.device):
            encoded = model.encode(model.features(waves), tap=keeper if keeper.points else None)
            unit = normalize(model.joint(encoded).float(), dim=-1)
        found = keeper.finish(encoded)
        found |= {"latent": encoded.latent.cpu().numpy(), "embedding": unit.cpu().numpy()}
        return here, found, _grids(model.encoder, found, encoded)

    return some


def _joined(parts: Sequence[FloatArray]) -> Values:
    if len({part.shape[1:] for part in parts}) == 1:
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    return tuple(clip for part in parts for clip in part)


def _grids(encoder: Encoder, found: Mapping[str, FloatArray], encoded: Encoded) -> dict[str, Grid]:
    """Where the tokens of everything kept lie, by stage and number of tokens."""
    grids: dict[str, Grid] = {}
    for name, value in found.items():
        place, _, rest = name.partition(".")
        per_token = rest and not name.startswith("direct/") and rest not in ("maps", "scale")
        if name == "tokens" or (per_token and not rest.endswith(".maps")):
            key = f"{place}/{value.shape[1]}"
            if key not in grids:
                grids[key] = _grid(encoder, place, value.shape[1], encoded)
    return grids


def _grid(encoder: Encoder, place: str, n_tokens: int, encoded: Encoded) -> Grid:
    try:
        if place == "tokens":
            return encoder.token_places(encoded).cpu().numpy()
        return encoder.time_frequency(int(place[1:]), n_tokens).cpu().numpy()
    except ModelError as error:
        return str(error)


def _check_bytes(n_bytes: int, n_done: int, n_all: int) -> None:
    expected = n_bytes / max(1, n_done) * n_all
    if expected > MAX_BYTES:
        raise InputError(
            f"{n_all} clips would need {expected / 1e9:.1f} GB of memory (limit "
            f"{MAX_BYTES / 1e9:.0f}): keep fewer units, run fewer clips, or extract to a store"
        )
