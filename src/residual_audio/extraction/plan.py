"""What will be done, decided before anything is written: the model, the clips, the shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from residual_audio.capture.capture_settings import CaptureSettings
from residual_audio.capture.embedded_texts import embed_texts, gather_texts
from residual_audio.capture.operators import encoder_operators, joint_operators, window_grids
from residual_audio.capture.recorder import fit_maps, probe_maps
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.data.tiled import Tiling, recordings, tiled
from residual_audio.errors import InputError
from residual_audio.extraction.extract_settings import ExtractSettings
from residual_audio.extraction.worker import ShardJob
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Features
from residual_audio.models.registry import load_model
from residual_audio.models.sounding import pools_where_it_sounds
from residual_audio.models.training_data import heard_before
from residual_audio.passes.loop import hear
from residual_audio.passes.sources import cut_clips, reason
from residual_audio.provenance import collect, plain, without_machine_paths
from residual_audio.store.shards import shard_ranges
from residual_audio.store.writer import Fixed, none_readable


@dataclass(frozen=True)
class Plan:
    """An extraction before it begins."""

    model: AudioTextModel
    dataset: Dataset
    n_all: int | None
    """Clips of the full data set, where only some were asked for."""
    settings: ExtractSettings
    capture: CaptureSettings
    map_shapes: Mapping[str, tuple[int, int, int]]
    """Head, query and key counts of each site's window maps."""
    device_type: str
    """Where the encoder runs, which need not be where this is planned."""

    @property
    def shards(self) -> tuple[range, ...]:
        return tuple(shard_ranges(len(self.dataset.clips), self.settings.shard_size))

    def asked(self) -> dict[str, Any]:
        """All that decides what is written: a run continues only where all of it is the same."""
        model, dataset, settings = self.model, self.dataset, self.settings
        described: dict[str, Any] = plain(
            {
                "model": {
                    "family": model.family,
                    "sha256": model.sha256,
                    "front_end": model.spec.to_dict(),
                    "dtype": str(model.dtype),
                    **({"pool": "sounding"} if pools_where_it_sounds(model) else {}),
                },
                "dataset": {
                    "name": dataset.name,
                    "fingerprint": dataset.fingerprint(),
                    "n_clips": len(dataset.clips),
                    "template": dataset.template,
                },
                "capture": self.capture.to_dict(),
                "run": {
                    "batch_size": settings.batch_size,
                    "shard_size": settings.shard_size,
                    "long": settings.long,
                    "device": self.device_type,
                    # said only where it is not as ever, so that earlier runs go on
                    **_said(settings),
                },
            }
        )
        return described

    def about(self) -> dict[str, Any]:
        """What a reader needs besides arrays."""
        model, whole = self.model, recordings(self.dataset)
        n_clips = len(whole.clips)
        return {
            "model": {
                "name": without_machine_paths(model.name),
                "family": model.family,
                "sha256": model.sha256,
            },
            "partial": None if self.n_all is None else {"n_clips": n_clips, "of": self.n_all},
            "sites": [list(astuple(site)) for site in model.encoder.sites],
            "logit_scale": float(model.logit_scale),
            "heard_before": heard_before(model.trained_on, whole),
            "provenance": collect(model, whole, self.settings.seed),
        }

    def job(self, folder: Path, run: str, model: AudioTextModel | str) -> ShardJob:
        """What workers are told; `model` as it was given, a name where they load it themselves."""
        settings = self.settings
        return ShardJob(
            model=model if settings.where.elsewhere else self.model,
            device=settings.device,
            device_type=self.device_type,
            dataset=replace(self.dataset, clips=(), missing={}, pairs=()),
            n_clips=len(self.dataset.clips),
            folder=folder,
            run=run,
            capture=self.capture,
            map_shapes=self.map_shapes,
            hearing=settings.hearing,
            precision=settings.precision,
        )

    def fixed(self) -> Fixed:
        """Matrices of the model, and the texts as it embeds them."""
        model, dataset = self.model, self.dataset
        captions = (text for clip in recordings(dataset).clips for text in clip.captions)
        texts = gather_texts(dataset.classes, dataset.template, captions, self.capture.seed)
        arrays, joint = joint_operators(model.head)
        arrays |= encoder_operators(model.encoder, self.capture.kinds)
        arrays |= window_grids(model.encoder, self.map_shapes)
        embedded, missing = embed_texts(model, texts)
        no_text = None if missing is None else without_machine_paths(missing)
        return Fixed(arrays | embedded, texts.to_dict(), joint, no_text)


def _said(settings: ExtractSettings) -> dict[str, str | float]:
    found: dict[str, str | float] = {}
    if settings.precision != "float32":
        found["precision"] = settings.precision
    if settings.hop_s is not None:
        found["hop_s"] = settings.hop_s
    return found


def plan_extraction(
    model: AudioTextModel | str,
    dataset: Dataset | str,
    settings: ExtractSettings,
    gpus_each: float | None = None,
) -> Plan:
    """Load what is given by name, choose the clips, look how large attention maps are.

    `gpus_each` are the GPUs of every worker, where workers have what this process may not have.
    """
    capture = settings.captured
    device = settings.device if gpus_each is None else "auto"
    loaded = load_model(model, device) if isinstance(model, str) else model
    full = load_dataset(dataset, settings.root) if isinstance(dataset, str) else dataset
    chosen = full if settings.limit is None else full.select(limit=settings.limit)
    if not len(chosen.clips):
        raise InputError(f"'{chosen.name}' has no clips to extract")
    n_all = chosen.part_of
    if settings.long == "tile":
        spec = loaded.spec
        tiling = Tiling.of(spec.sample_rate_hz, spec.n_samples, settings.hop_s)
        chosen = tiled(chosen, tiling)
    shapes: dict[str, tuple[int, int, int]] = {}
    if "attention" in capture.kinds:
        shapes = probe_maps(loaded.encoder, _first_features(loaded, chosen, settings))
        capture = fit_maps(capture, shapes)
    device_type = _device_type(loaded, settings.device, gpus_each)
    return Plan(loaded, chosen, n_all, settings, capture, shapes, device_type)


def _device_type(model: AudioTextModel, asked: str, gpus_each: float | None) -> str:
    if gpus_each is None:
        return model.device.type
    if asked != "auto":
        return asked.partition(":")[0]
    return "cuda" if gpus_each else "cpu"


@torch.inference_mode()
def _first_features(model: AudioTextModel, dataset: Dataset, settings: ExtractSettings) -> Features:
    """Features of the first clip that can be heard."""
    reasons: list[str] = []

    def skip(place: int, error: Exception) -> None:
        reasons.append(reason(error, dataset.clips[place]))

    one = replace(settings.hearing, batch_size=1, n_threads=0)
    cut = cut_clips(model, dataset, one.long)
    for waves, _ in hear(dataset.clips, cut, one, device=model.device, skip=skip):
        return model.features(waves)
    raise none_readable(len(dataset.clips), dataset.name, reasons[0])
