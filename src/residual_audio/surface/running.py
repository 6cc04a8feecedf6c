"""A run of a model over sounds as a `Cache`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from residual_audio.capture.cache import Cache, Values
from residual_audio.capture.keep import Keep, parse_keep
from residual_audio.capture.kept_run import Ran, run_clips
from residual_audio.capture.operators import encoder_operators
from residual_audio.direct.contributions import Captured, Contributions
from residual_audio.models.clap import AudioTextModel
from residual_audio.passes.loop import Cut, Hearing
from residual_audio.passes.sources import AudioInput
from residual_audio.progress import SILENT, Progress
from residual_audio.types import UnitLike


def keep_run(
    model: AudioTextModel,
    items: Sequence[AudioInput],
    keep: UnitLike | Iterable[UnitLike],
    cut: Cut[AudioInput],
    hearing: Hearing,
    *,
    strict: bool = True,
    progress: Progress = SILENT,
) -> Cache:
    """Run once and keep what was asked for; contributions that were not are made when asked."""
    wanted = parse_keep(keep, model.encoder.sites)
    ran = run_clips(model, items, cut, wanted, hearing, strict=strict, progress=progress)
    names = [name_of(item, place) for place, item in enumerate(items)]
    kept = {name: value for name, value in ran.values.items() if not name.startswith("direct/")}

    @cache
    def decompose() -> Contributions:
        found = ran
        if not wanted.contributions:
            heard = [items[place] for place in ran.places]
            found = run_clips(model, heard, cut, Keep(contributions=True), hearing)
        return _contributions(model, ran, found)

    return Cache(
        clips=tuple(names[place] for place in ran.places),
        latent=ran.latent,
        embedding=ran.embedding,
        values=kept,
        units=_units(wanted, kept),
        grids=ran.grids,
        model=model.name,
        skipped={names[place]: str(error) for place, error in ran.skipped.items()},
        decompose=decompose,
    )


def _units(keep: Keep, kept: Mapping[str, Values]) -> tuple[str, ...]:
    """What of it can be put in the place of the same unit in another clip."""
    names = {str(site) for site in keep.out} | {str(site.heads[h]) for site, h in keep.heads}
    return (*(name for name in kept if name in names), *(("output",) if keep.output else ()))


def _contributions(model: AudioTextModel, ran: Ran, pools: Ran) -> Contributions:
    arrays = {
        name: value
        for name, value in pools.values.items()
        if name.startswith("direct/") and isinstance(value, np.ndarray)
    }
    operators = encoder_operators(model.encoder, ("direct",))
    source = Captured(model.encoder.sites, {**arrays, "embedding/latent": ran.latent}, operators)
    return Contributions(source)


def name_of(item: AudioInput, place: int) -> str:
    """What a clip is called in a cache."""
    return str(item) if isinstance(item, str | Path) else f"waveform {place}"
