"""A small pass over the clips that heads point at: sounds, mel pictures, responses, time maps."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.atlas.components import ComponentsOfRun, Pointed, most_pointed, pointed_clips
from residual_audio.atlas.media import FOLDER, LISTING, PICTURES, SOUNDS
from residual_audio.audio.decode import resample
from residual_audio.data.base import Dataset
from residual_audio.engine.cores import stream_clips
from residual_audio.engine.jobs import available_cores
from residual_audio.errors import ModelError
from residual_audio.files import replacing, write_json, write_safetensors
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Features
from residual_audio.passes.loop import Hearing, hear, heard_as
from residual_audio.passes.sources import cut_clips
from residual_audio.pipeline.asked_texts import AskedTexts
from residual_audio.pipeline.responses import Directions, HeardTokens, directions_of, responses
from residual_audio.progress import SILENT, Progress
from residual_audio.seals import seal_files
from residual_audio.store import Store
from residual_audio.types import FloatArray, Site

RATE_HZ = 22_050
LONGEST_S = 12.0
SMALLEST_FILE = 1.0
"""Vorbis at low quality: about 4 kB a second."""
MEL_SIZE = (100, 48)
"""Frames and bands of a picture, at most."""

Named = Iterator[tuple[str, FloatArray]]
_Named = list[tuple[str, FloatArray]]


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
    eye = _Eye(model, ComponentsOfRun(store))
    asked = AskedTexts(model, store)
    asked.prepare()
    rows = most_pointed(eye.pointed, n_previews)
    progress.step("listening", len(rows))
    pictures: dict[str, list[FloatArray]] = {}
    listing, sounds = [], []

    # encoding a sound keeps one core busy and holds no lock: it goes on beside the model
    def look(waves: Tensor, batch: Sequence[int]) -> tuple[Tensor, Sequence[int], _Named]:
        return waves, batch, list(eye.look(model.features(waves), batch, asked))

    with (
        ThreadPoolExecutor(available_cores()) as pool,
        closing(_heard(model, dataset, store, rows)) as batches,
        closing(stream_clips(look, batches)) as looked,  # every core has clips of its own
    ):
        for waves, batch, found in looked:
            for name, picture in found:
                pictures.setdefault(name, []).append(picture)
            for wave, row in zip(waves.cpu().numpy(), batch, strict=True):
                path = run / FOLDER / SOUNDS / f"{row}.ogg"
                sounds.append(pool.submit(_write_sound, path, wave, model.sample_rate_hz))
                entry = {"row": row, "id": str(store.clips["id"][row]), "file": path.name}
                listing.append({**entry, "asked": asked.texts_of(row)})
            progress.advance(len(batch))
        written = [sound.result() for sound in sounds]
    arrays = {
        name: np.concatenate(parts) if name.startswith(("rows/", "response/")) else parts[0]
        for name, parts in pictures.items()
    }
    written.append(write_safetensors(run / FOLDER / PICTURES, arrays))
    about = {"clips": listing, "seconds": model.spec.duration_s, "sample_rate_hz": RATE_HZ}
    written.append(write_json(run / FOLDER / LISTING, about))
    return [*written, *seal_files(written)]


def _heard(
    model: AudioTextModel, dataset: Dataset, store: Store, rows: Sequence[int]
) -> Generator[tuple[Tensor, list[int]], None, None]:
    """Waves and rows of the clips, as extraction heard them; first windows only."""
    by_id = {clip.id: clip for clip in dataset.clips}
    there = [row for row in rows if str(store.clips["id"][row]) in by_id]
    clips = [by_id[str(store.clips["id"][row])] for row in there]
    hearing = Hearing(heard_as(store.run_info.long), batch_size=8)
    done: set[int] = set()
    cut = cut_clips(model, dataset, hearing.long)
    with closing(hear(clips, cut, hearing, device=model.device, skip=lambda *_: None)) as batches:
        for waves, places in batches:
            fresh = [i for i, p in enumerate(places) if p not in done and p not in places[:i]]
            done.update(places)
            if fresh:
                yield waves[fresh], [there[places[i]] for i in fresh]


class _Eye:
    """Looks at features of clips with the model; what is the same for all clips is made once."""

    def __init__(self, model: AudioTextModel, components: ComponentsOfRun) -> None:
        self.pointed = pointed_clips(components)
        self._model = model
        self._direct = components.direct
        self._path = model.encoder.direct_path() if components.direct else None
        self._directions: dict[Site, Directions] = {
            site: directions_of(components, site) for site in components.store.attention_sites
        }
        self._by_row: dict[int, list[Pointed]] = {}
        for one in self.pointed:
            self._by_row.setdefault(one.row, []).append(one)

    def look(self, features: Features, batch: Sequence[int], asked: AskedTexts) -> Named:
        """Names and arrays of one batch: `mel/<row>`, `rows/<head>/<component>`, `response/…`,
        `times/<row>`."""
        mel = features[0][:, 0] if isinstance(features, tuple) else features  # clip frame band
        size = (min(mel.shape[1], MEL_SIZE[0]), min(mel.shape[2], MEL_SIZE[1]))
        for row, picture in zip(batch, F.adaptive_avg_pool2d(mel.float(), size), strict=True):
            yield f"mel/{row}", picture.cpu().numpy().astype(np.float16)
        heard = HeardTokens(self._model.encoder.sites[0])
        latent = self._model.encode(features, tap=heard).latent
        try:
            yield from self._responses(heard, batch)
            if self._direct:
                yield from asked.times(heard.sums, latent, batch)
        except ModelError:  # tokens without a place of their own in time and frequency
            return

    def _responses(self, heard: HeardTokens, batch: Sequence[int]) -> Named:
        """Of the heads that point at these clips."""
        wanted = [(i, one) for i, row in enumerate(batch) for one in self._by_row.get(row, [])]
        for site, directions in self._directions.items():
            block = (site.stage, site.block)
            own = [(i, one) for i, one in wanted if (one.head.stage, one.head.block) == block]
            if not own:
                continue
            grids = responses(self._model.encoder, heard, site, directions, self._path)
            found = grids.cpu().numpy()
            for i, one in own:
                name = f"{one.head}/{one.component}"
                yield f"rows/{name}", np.array([one.row], np.int64)
                picture = found[i, one.head.head, one.component]
                yield f"response/{name}", picture[None].astype(np.float32)


def _write_sound(path: Path, wave: FloatArray, rate_hz: int) -> Path:
    import soundfile

    sound = resample(wave[: int(LONGEST_S * rate_hz)], rate_hz, RATE_HZ)
    peak = max(1.0, float(np.abs(sound).max()))
    with replacing(path, durable=False) as temporary:
        soundfile.write(
            temporary, sound / peak, RATE_HZ, format="OGG", compression_level=SMALLEST_FILE
        )
    return path
