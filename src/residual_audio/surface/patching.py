"""`ra.patching` and `ra.time_map`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import torch

from residual_audio.audio.windows import LongPolicy
from residual_audio.data.base import Dataset
from residual_audio.direct.time_map import TimeMap, time_maps
from residual_audio.errors import InputError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.token_times import Range, check_range
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import AudioInput, cut_inputs
from residual_audio.patching.class_pairs import exchanges_of_dataset
from residual_audio.patching.exchanges import (
    Exchanges,
    Sounds,
    exchanges_of_sounds,
)
from residual_audio.patching.interchange import ExchangeWay, Method, Route, interchange
from residual_audio.patching.measures import Measure, MeasureName
from residual_audio.patching.outcomes import MIN_GAP, effects_table
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table
from residual_audio.types import UnitLike

Texts = tuple[str, str] | Sequence[tuple[str, str]]


class PatchOptions(TypedDict, total=False):
    """What `ra.patching` takes by name."""

    measure: MeasureName | Measure
    """`difference`, `margin`, `embedding`, or a function (joint [n, d], clean [d]) → [n]."""
    method: Method
    """`exact`, or `attribution`: one backward pass for all units."""
    path: Route
    """`total`: through everything after; `direct`: only what the unit itself adds to the latent."""
    between: Range
    """Only at the tokens of this time range, in seconds."""
    sample_rate: int
    """Of waveforms, in Hz."""
    groups: Sequence[str]
    """Pairs of one source share a group; intervals draw whole groups."""
    min_gap: float
    long: LongPolicy
    batch_size: int
    seed: int
    progress: Progress


def patching(
    model: AudioTextModel,
    clean: AudioInput | Sequence[AudioInput] | None = None,
    corrupt: AudioInput | Sequence[AudioInput] | None = None,
    *,
    pairs: Dataset | None = None,
    units: UnitLike | Sequence[UnitLike] = "head",
    texts: Texts | None = None,
    **options: Unpack[PatchOptions],
) -> Table:
    """How much of what tells two clips apart each unit carries: values of the clean clip are put
    into the corrupt one. 0 leaves the corrupt clip as it was, 1 makes it the clean one.

    Clips i of `clean` and `corrupt` with `texts` (caption of the clean, of the corrupt), or both
    directions of all `pairs` of a data set. Without texts the embedding itself is what is measured.

    >>> import numpy as np, residual_audio as ra
    >>> rng = np.random.default_rng(0)
    >>> hiss, hum = rng.normal(size=32000) / 10, np.sin(np.arange(32000) / 50) / 2
    >>> found = ra.patching(ra.load_model("nano"), hiss, hum, units="stage", sample_rate=32000)
    >>> found["unit"].tolist()
    ['s0', 's1', 's2', 's3']
    """
    way = ExchangeWay(
        options.get("method", "exact"),
        options.get("path", "total"),
        check_range(options["between"]) if "between" in options else None,
        options.get("batch_size", 4),
        options.get("min_gap", MIN_GAP),
    )
    given = _exchanges(model, clean, corrupt, pairs, texts, options)
    found = interchange(given, units, way, progress=options.get("progress", SILENT))  # type: ignore[arg-type]
    return effects_table(found, "patching", options.get("seed", 0))


def _exchanges(
    model: AudioTextModel,
    clean: AudioInput | Sequence[AudioInput] | None,
    corrupt: AudioInput | Sequence[AudioInput] | None,
    pairs: Dataset | None,
    texts: Texts | None,
    options: PatchOptions,
) -> Exchanges:
    hearing = Hearing(options.get("long", "first"))
    progress = options.get("progress", SILENT)
    measure = options.get("measure")
    if pairs is not None:
        if clean is not None or corrupt is not None or texts is not None or callable(measure):
            raise InputError(
                "pairs of a data set have their own clips and captions: give no others"
            )
        return exchanges_of_dataset(model, pairs, measure or "difference", hearing, progress)
    if clean is None or corrupt is None:
        raise InputError("patching needs clean and corrupt clips, or pairs of a data set")
    sounds = Sounds(
        _several(clean), _several(corrupt), options.get("sample_rate"), options.get("groups")
    )
    said = _captions(texts, len(sounds.clean))
    measure = measure or ("embedding" if said is None else "difference")
    return exchanges_of_sounds(model, sounds, said, measure, hearing, progress)


def _several(clips: AudioInput | Sequence[AudioInput]) -> Sequence[AudioInput]:
    if isinstance(clips, str | Path) or (isinstance(clips, np.ndarray) and clips.ndim == 1):
        return [clips]
    return list(clips)


def _captions(texts: Texts | None, n: int) -> list[tuple[str, str]] | None:
    if texts is None:
        return None
    if isinstance(texts, tuple) and len(texts) == 2 and all(isinstance(t, str) for t in texts):
        return [(str(texts[0]), str(texts[1]))] * n
    given = [tuple(two) for two in texts]
    if len(given) != n or any(len(two) != 2 for two in given):
        raise InputError(
            f"texts are the caption of the clean and of the corrupt clip, for each of {n} pairs"
        )
    return [(str(two[0]), str(two[1])) for two in given]


def time_map(
    model: AudioTextModel,
    clip: AudioInput,
    text: str,
    *,
    sample_rate: int | None = None,
    long: LongPolicy = "first",
) -> TimeMap:
    """What each moment of a clip contributes to its score with a text, unit by unit.

    The contributions and `rest` (what has no time) sum to the score. They are read where the model
    has put the evidence, which need not be where the sound is: see the page on composition.

    >>> import numpy as np, residual_audio as ra
    >>> hiss = np.random.default_rng(0).normal(size=160000) / 10
    >>> found = ra.time_map(ra.load_model("nano"), hiss, "rain", sample_rate=32000)
    >>> bool(abs(found.total.sum() + found.rest - found.score) < 1e-5)
    True
    """
    if not isinstance(text, str):
        raise InputError("time_map takes one text: call it once for each")
    if not text.strip():
        raise InputError("the text is empty: say what to look for in the clip")
    windows = np.stack(list(islice(cut_inputs(model, long, sample_rate)(clip), 2)))
    if len(windows) != 1:
        raise InputError("a map is of one window of a clip: use long first or center")
    with torch.no_grad():
        features = model.features(torch.from_numpy(windows).to(model.device))
    vector = model.embed_text([text])[0]
    seconds = windows.shape[1] / model.sample_rate_hz
    return time_maps(model, features, {text: vector}, seconds)[text]
