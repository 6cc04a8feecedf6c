"""A small pass over the clips that heads point at: sounds, mel pictures, responses by patch.

What a patch adds to a clip's coordinate along a component is exact: with norm statistics frozen
the coordinate is a sum over tokens (see `models.direct_path`), so the picture sums to it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.atlas.components import ComponentsOfRun, Pointed, most_pointed, pointed_clips
from residual_audio.atlas.media import FOLDER, LISTING, PICTURES, SOUNDS
from residual_audio.audio.decode import resample
from residual_audio.capture.tokens import grid_order
from residual_audio.data.base import Dataset
from residual_audio.errors import ModelError
from residual_audio.files import replacing, write_json, write_safetensors
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Features
from residual_audio.passes.loop import Hearing, hear
from residual_audio.passes.sources import cut_clips
from residual_audio.progress import SILENT, Progress
from residual_audio.store import Store
from residual_audio.types import FloatArray, Site

RATE_HZ = 22_050
LONGEST_S = 12.0
SMALLEST_FILE = 1.0
"""Vorbis at low quality: about 4 kB a second."""
MEL_SIZE = (100, 48)
"""Frames and bands of a picture, at most."""
RESPONSE_SIZE = (64, 16)
"""Time and frequency steps of a response, at most."""


class _Outputs:
    """A tap that keeps head outputs of every token and the scales of the norms."""

    points = frozenset({"raw", "scale"})

    def __init__(self) -> None:
        self.raw: dict[Site, Tensor] = {}
        self.scales: dict[int, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if isinstance(where, Site):
            self.raw[where] = value
        else:
            self.scales[where] = value


@dataclass(frozen=True)
class Directions:
    """Of one attention site: where each shown component of its heads points, before W_O."""

    along: Tensor
    """[slot, head, d_head, component]"""
    offset: Tensor
    """[head, component]: the coordinate of the mean, which the responses leave out."""


def directions_of(components: ComponentsOfRun, site: Site) -> Directions:
    """For the direct path: one direction a slot; else one for all tokens."""
    most = max((components[head].n_shown for head in site.heads), default=0)
    along, offsets = [], []
    for head in site.heads:
        one = components[head]
        basis = one.spectrum.basis[: one.n_shown]
        own = basis.T
        if components.direct:
            own = components.contributions.operator(head).astype(np.float64) @ own
        missing = most - one.n_shown
        along.append(np.pad(own, ((0, 0), (0, missing))).reshape(-1, site.d_head, most))
        offsets.append(np.pad(basis @ one.spectrum.mean, (0, missing)))
    return Directions(
        torch.from_numpy(np.stack(along, 1).astype(np.float32)),
        torch.from_numpy(np.stack(offsets).astype(np.float32)),
    )


def responses(model: AudioTextModel, outputs: _Outputs, site: Site, found: Directions) -> Tensor:
    """[clip, head, component, time, frequency]: what each place adds to a centred coordinate."""
    raw = outputs.raw[site]  # clip token head d_head
    n_tokens = raw.shape[1]
    slots = found.along.shape[0]
    if slots == 1 and not outputs.scales:
        terms = torch.einsum("cthd,hdk->cthk", raw, found.along[0]) / n_tokens
    else:
        path = model.encoder.direct_path()
        weight = path.weights(outputs.scales)[site.stage]  # clip instance slot
        seen = torch.einsum("cishd,shdk->cishk", path.view(site.stage, raw), found.along)
        pooled = seen * weight[..., None, None]
        # the way back from instances and slots to tokens
        places = path.view(site.stage, torch.arange(n_tokens)[None]).flatten()
        terms = raw.new_zeros(len(raw), n_tokens, *pooled.shape[3:])
        terms[:, places] = pooled.flatten(1, 2)
    order, n_times, n_bands = grid_order(model.encoder.time_frequency(site.stage, n_tokens))
    grid = (terms[:, order] - found.offset / len(order)).unflatten(1, (n_times, n_bands))
    return _summed(grid.permute(0, 3, 4, 1, 2))


def _summed(grid: Tensor) -> Tensor:
    """At most `RESPONSE_SIZE`; neighbours are added up, so that the sum stays."""
    n_times, n_bands = grid.shape[-2:]
    size = (min(n_times, RESPONSE_SIZE[0]), min(n_bands, RESPONSE_SIZE[1]))
    if size == (n_times, n_bands):
        return grid
    small = F.adaptive_avg_pool2d(grid.flatten(1, 2), size).unflatten(1, grid.shape[1:3])
    return small * (n_times * n_bands / (size[0] * size[1]))


@torch.inference_mode()
def write_listening(
    run: Path,
    model: AudioTextModel,
    dataset: Dataset,
    store: Store,
    *,
    n_previews: int,
    progress: Progress = SILENT,
) -> list[Path]:
    """Write `run/atlas-data` for at most `n_previews` clips; the files that were written."""
    components = ComponentsOfRun(store)
    pointed = pointed_clips(components)
    rows = most_pointed(pointed, n_previews)
    progress.step("listening", len(rows))
    pictures: dict[str, list[FloatArray]] = {}
    listing, written = [], []
    with closing(_heard(model, dataset, store, rows)) as batches:
        for waves, features, batch in batches:
            for name, picture in _pictures(model, components, features, batch, pointed):
                pictures.setdefault(name, []).append(picture)
            for wave, row in zip(waves, batch, strict=True):
                path = run / FOLDER / SOUNDS / f"{row}.ogg"
                written.append(_write_sound(path, wave, model.sample_rate_hz))
                listing.append({"row": row, "id": str(store.clips["id"][row]), "file": path.name})
            progress.advance(len(batch))
    arrays = {
        name: found[0] if name.startswith("mel/") else np.concatenate(found)
        for name, found in pictures.items()
    }
    written.append(write_safetensors(run / FOLDER / PICTURES, arrays))
    seconds = min(model.spec.duration_s, LONGEST_S)
    about = {"clips": listing, "seconds": seconds, "sample_rate_hz": RATE_HZ}
    return [*written, write_json(run / FOLDER / LISTING, about)]


def _heard(
    model: AudioTextModel, dataset: Dataset, store: Store, rows: Sequence[int]
) -> Generator[tuple[FloatArray, Features, list[int]], None, None]:
    """Waves, features and rows of the clips, as extraction heard them; first windows only."""
    by_id = {clip.id: clip for clip in dataset.clips}
    there = [row for row in rows if str(store.clips["id"][row]) in by_id]
    clips = [by_id[str(store.clips["id"][row])] for row in there]
    hearing = Hearing(store.run_info.long, batch_size=8)
    done: set[int] = set()
    cut = cut_clips(model, dataset, hearing.long)
    with closing(hear(clips, cut, hearing, device=model.device, skip=lambda *_: None)) as batches:
        for waves, places in batches:
            fresh = [i for i, p in enumerate(places) if p not in done and p not in places[:i]]
            done.update(places)
            if fresh:
                chosen = waves[fresh]
                yield (
                    chosen.cpu().numpy(),
                    model.features(chosen),
                    [there[places[i]] for i in fresh],
                )


def _pictures(
    model: AudioTextModel,
    components: ComponentsOfRun,
    features: Features,
    batch: Sequence[int],
    pointed: Sequence[Pointed],
) -> Iterator[tuple[str, FloatArray]]:
    """Names and arrays of one batch: `mel/<row>`, `rows/<head>/<component>`, `response/…`."""
    mel = features[0][:, 0] if isinstance(features, tuple) else features  # clip frame band
    size = (min(mel.shape[1], MEL_SIZE[0]), min(mel.shape[2], MEL_SIZE[1]))
    for row, picture in zip(batch, F.adaptive_avg_pool2d(mel.float(), size), strict=True):
        yield f"mel/{row}", picture.cpu().numpy().astype(np.float16)
    outputs = _Outputs()
    model.encode(features, tap=outputs)
    if not components.direct:
        outputs.scales = {}
    place = {row: i for i, row in enumerate(batch)}
    wanted = [one for one in pointed if one.row in place]
    for site in components.store.attention_sites:
        own = [
            one for one in wanted if (one.head.stage, one.head.block) == (site.stage, site.block)
        ]
        if not own:
            continue
        try:
            found = responses(model, outputs, site, directions_of(components, site)).cpu().numpy()
        except ModelError:  # tokens without a place of their own in time and frequency
            return
        for one in own:
            name = f"{one.head}/{one.component}"
            yield f"rows/{name}", np.array([one.row], np.int64)
            picture = found[place[one.row], one.head.head, one.component]
            yield f"response/{name}", picture[None].astype(np.float32)


def _write_sound(path: Path, wave: FloatArray, rate_hz: int) -> Path:
    import soundfile

    sound = resample(wave[: int(LONGEST_S * rate_hz)], rate_hz, RATE_HZ)
    peak = max(1.0, float(np.abs(sound).max()))
    with replacing(path) as temporary:
        soundfile.write(
            temporary, sound / peak, RATE_HZ, format="OGG", compression_level=SMALLEST_FILE
        )
    return path
