"""What a model looks like while it learns: head dimensions, modality gap, rank, held-out accuracy.

Everything is measured on one fixed set of clips, chosen evenly, so that looks can be compared.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from residual_audio.files import write_safetensors
from residual_audio.metrics.cloud_shape import modality_gap, rank_me
from residual_audio.metrics.dimension import mle, two_nn
from residual_audio.metrics.neighbours import neighbour_distances
from residual_audio.metrics.spectra import eigenspectrum, participation_ratio, pca_dimension
from residual_audio.training.recipe import AudioRecipe
from residual_audio.training.training_clips import Clips
from residual_audio.types import Site

if TYPE_CHECKING:
    from residual_audio.training.audio_stage import Learner

BATCH = 50
NEIGHBOURS = 20


class HeadMeans:
    """A tap that keeps each head's mean output of every clip."""

    points = frozenset({"raw"})

    def __init__(self) -> None:
        self.parts: dict[Site, list[Tensor]] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if isinstance(where, Site):
            self.parts.setdefault(where, []).append(value.float().mean(1).cpu())

    def heads(self) -> dict[Site, np.ndarray[Any, Any]]:
        """Site → [head, clip, d_head]."""
        return {site: torch.cat(p).transpose(0, 1).numpy() for site, p in self.parts.items()}


class Probe:
    """A fixed set of clips and texts to look at."""

    def __init__(self, recipe: AudioRecipe, clips: Clips) -> None:
        self.clips = clips
        self.prompts = [recipe.templates[0].replace("{}", label) for label in clips.classes]
        labelled = ((clips.labels >= 0) & ~clips.held_out).nonzero().flatten()
        count = min(recipe.track.n_clips, len(labelled))
        self.rows = labelled[torch.linspace(0, len(labelled) - 1, count).round().long()]
        self.held = (clips.held_out & (clips.labels >= 0)).nonzero().flatten()

    @torch.inference_mode()
    def look(
        self, learner: Learner, prompts: Tensor, step: int, folder: Path | None
    ) -> dict[str, object]:
        """Numbers for the log, with the prompts' vectors; spectra of all heads go to `folder`."""
        device = learner.log_scale.device
        texts = prompts.float().cpu()
        tap = HeadMeans()
        vectors = []
        for rows in self.rows.split(BATCH):
            encoded = learner.encoder.encode(self.clips.features[rows].float().to(device), tap=tap)
            vectors.append(torch.nn.functional.normalize(learner.head(encoded), dim=-1).cpu())
        audio = torch.cat(vectors)
        found = self._heads(tap, step, folder)
        own = texts[self.clips.labels[self.rows]]
        found |= {
            "modality_gap": modality_gap(audio.numpy(), own.numpy()).l2,
            "rankme_audio": rank_me(audio.numpy()),
            "rankme_text": rank_me(texts.numpy()),
            "matched_cosine": float((audio * own).sum(1).mean()),
            "logit_scale": float(learner.scale),
            "n_clips": len(self.rows),
            "probe_accuracy": self._accuracy(audio, self.rows, texts),
        }
        if len(self.held):
            parts = [
                learner.audio(self.clips.features[rows].float().to(device))[1].cpu()
                for rows in self.held.split(BATCH)
            ]
            held = torch.cat(parts)
            for source in self.clips.sources[self.held].unique().tolist():
                of = self.clips.sources[self.held] == source
                found[f"held_out_accuracy_{source}"] = self._accuracy(
                    held[of], self.held[of], texts
                )
                found[f"held_out_n_{source}"] = int(of.sum())
        return found

    def _accuracy(self, audio: Tensor, rows: Tensor, texts: Tensor) -> float:
        """Zero-shot top-1 with the first template, over the classes of each clip's data set."""
        allowed = self.clips.class_sources[:, self.clips.sources[rows]].T
        guess = (audio @ texts.T).masked_fill(~allowed, -2.0).argmax(1)
        return float((guess == self.clips.labels[rows]).float().mean())

    def _heads(self, tap: HeadMeans, step: int, folder: Path | None) -> dict[str, object]:
        names: list[str] = []
        columns: dict[str, list[float | None]] = {}
        spectra: dict[str, Any] = {}
        for site, values in tap.heads().items():
            spectrum = eigenspectrum(values)
            spectra[str(site)] = spectrum.astype(np.float32)
            names += [str(head) for head in site.heads]
            neighbours = neighbour_distances(values, k=min(NEIGHBOURS, values.shape[1] - 1))
            for key, column in (
                ("pca_90", pca_dimension(spectrum, 0.90)),
                ("pca_99", pca_dimension(spectrum, 0.99)),
                ("pr", participation_ratio(spectrum)),
                ("twonn", two_nn(neighbours).value),
                ("mle", mle(neighbours).value),
            ):
                own = [round(float(v), 4) if math.isfinite(v) else None for v in column]
                columns.setdefault(key, []).extend(own)
        if folder is not None:
            write_safetensors(folder / f"step-{step:06d}.safetensors", spectra)
        return {"heads": names, **columns}
