"""Last stage: composition. Beside the ordinary batches, pairs of clips that hold the same sounds.

A model that only ever hears different sounds can tell captions apart by their nouns, and does. Here
each step also has both clips of some items ("a dog, then a bell", "a bell, then a dog"), and the
exchanged caption is an explicit negative of each clip, the exchanged clip one of each caption.
Nothing that would change the answer is done to these clips: they are not rolled, stretched, shifted
in pitch, masked, mixed or drowned in noise; only their level and tilt vary.

What was learned before is kept by holding single clips and their texts to where the model put them
when the stage began. That has no gradient at the start and little noise later, unlike the loss of
a few clips against all classes.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.metrics.compa import outcomes
from residual_audio.models import native
from residual_audio.models.encoder import Encoder
from residual_audio.models.text_small import SmallText
from residual_audio.training.audio_stage import AudioTask, HeardBatch, Learner
from residual_audio.training.augment import augment, colour
from residual_audio.training.losses import (
    centroid,
    cosine_distance,
    exchanged,
    spread,
    symmetric_contrastive,
)
from residual_audio.training.pair_data import PairBatch, PairBatches, PairClips
from residual_audio.training.recipe import ComposeRecipe, Recipe
from residual_audio.training.training_clips import Clips
from residual_audio.training.training_loop import generator

BATCH = 32
PROMPTS_IN = 8
"""Steps in which every class prompt has been held once."""


class ComposeTask(AudioTask):
    """Ordinary batches, which keep what was learned, and pairs, which teach what was not."""

    def __init__(
        self,
        recipe: Recipe,
        compose: ComposeRecipe,
        clips: Clips,
        pairs: PairClips,
        validation: PairClips | None,
        text: SmallText,
    ) -> None:
        super().__init__(recipe, clips, text, None, compose.optimisation, compose.text_lr)
        self.compose = compose
        single = recipe.audio.augment.model_copy(update={"mix": 0.0, "cut": 0.0})
        self.augmentation = compose.augment or single
        self.before = self.module
        self.pair_batches = PairBatches(
            compose.data,
            pairs,
            recipe.seed,
            compose.items,
            compose.captions,
            compose.optimisation.steps,
        )
        self.validation = validation
        self.identity |= {
            "compose": compose.model_dump(mode="json", exclude={"optimisation", "validation"}),
            "pairs": list(pairs.fingerprints),
        }

    def start_from(self, state: dict[str, Tensor], held_to: dict[str, Tensor]) -> None:
        """Weights to begin with, and those of the model that single sounds are held to."""
        self.module.load_state_dict(held_to)
        self.before = copy.deepcopy(self.module).requires_grad_(False).eval()
        self.module.load_state_dict(state)

    def lr_scale(self, name: str) -> float:
        return 0.0 if name.startswith(self.compose.frozen) else super().lr_scale(name)

    def encode(self, features: Tensor, texts: list[str]) -> HeardBatch:
        """Clips and texts of an ordinary batch; both are held to what they were before."""
        heard = super().encode(features, texts)
        with torch.no_grad():
            self.before.to(features.device)
            audio, text = self.before.audio(features)[1], self.before.texts(texts)
        held = {
            "audio_moved": self.compose.audio_anchor * cosine_distance(heard.audio, audio),
            "text_moved": self.compose.text_anchor * cosine_distance(heard.text, text),
        }
        return replace(heard, held=held, weight=self.compose.ordinary_weight)

    def _kept(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """Only what holds clips and texts; of the class prompts, an eighth each step."""
        batch = self.batches.at(step)
        features = self.clips.features[batch.rows].float()
        mixed = augment(
            features, batch.movable, self.augmentation, self.floor, generator(self.seed, 0, step)
        )
        prompts = batch.prompts[step % PROMPTS_IN :: PROMPTS_IN]
        device = self.module.log_scale.device
        held = self.encode(mixed.features.to(device), [*batch.texts, *prompts]).held
        return torch.stack(list(held.values())).sum(), {
            k: float(v.detach()) for k, v in held.items()
        }

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        ordinary, numbers = super().loss(step) if self.compose.ordinary_weight else self._kept(step)
        batch = self.pair_batches.at(step)
        device = self.module.log_scale.device
        features = colour(batch.features, self.augmentation, generator(self.seed, 3, step))
        _, audio = self.module.audio(features.clamp(min=self.floor).to(device))
        text = self.module.texts(batch.texts)
        with torch.autocast(device.type, enabled=False):
            parts = self._composition(audio, text, batch)
            loss = ordinary + torch.stack(list(parts.values())).sum()
        return loss, {**numbers, **{key: float(v.detach()) for key, v in parts.items()}}

    def _composition(self, audio: Tensor, text: Tensor, batch: PairBatch) -> dict[str, Tensor]:
        compose, scale = self.compose, self.module.scale
        positive = batch.positives().to(audio.device)
        parts = {
            "contrast": compose.contrast_weight
            * symmetric_contrastive(audio, text, scale, positive),
            "exchanged": compose.exchanged_weight
            * exchanged(
                audio.unflatten(0, (-1, 2)),
                text.unflatten(0, (-1, 2, batch.k)),
                scale,
                batch.told_apart().to(audio.device),
            ),
        }
        if compose.spread_weight:
            parts["spread"] = compose.spread_weight * spread(text)
        if compose.centroid_weight:
            parts["centroid"] = compose.centroid_weight * centroid(text)
        return parts

    def look(self, step: int) -> dict[str, object]:
        found = super().look(step)
        if self.validation is None:
            return found
        return found | score_composition(self.module, self.validation)


@torch.inference_mode()
def score_composition(learner: Learner, pairs: PairClips) -> dict[str, float]:
    """F, G and H of the first caption of each item, for every data set of pairs by its number."""
    device = learner.log_scale.device
    rows = pairs.features.flatten(0, 1)
    audio = torch.cat(
        [learner.audio(part.float().to(device))[1].cpu() for part in rows.split(BATCH)]
    ).unflatten(0, (-1, 2))
    texts = [said[0] for item in pairs.captions for said in item]
    text = torch.cat(
        [learner.texts(texts[i : i + 256]).cpu() for i in range(0, len(texts), 256)]
    ).unflatten(0, (-1, 2))
    passed = outcomes(torch.einsum("itd,iad->ita", text, audio).numpy())
    return {
        f"pairs_{source}_{name}": float(passed[name][(pairs.sources == source).numpy()].mean())
        for source in pairs.sources.unique().tolist()
        for name in ("f", "g", "h")
    }


def load_tower_of(folder: Path) -> SmallText:
    """The text tower of a finished model."""
    text = native.load(folder).text
    if not isinstance(text, SmallText):
        raise InputError(f"'{folder}' has no text tower of ours to teach composition to")
    return text.requires_grad_(True)


def weights_of(folder: Path, learner: Learner, clips: Clips) -> dict[str, Tensor]:
    """State of a learner that begins with a finished model; the heads that only the teacher sees
    are not in a model, so they are fitted to it."""
    model = native.load(folder)
    state = learner.state_dict()
    for part in ("encoder", "head", "text"):
        module = getattr(model, part)
        state |= {f"{part}.{key}": value for key, value in module.state_dict().items()}
    state["log_scale"] = torch.tensor(float(model.logit_scale)).log()
    if clips.teacher:
        state |= _teacher_heads(model.encoder, clips, set(learner.distil_heads))
    return state


@torch.inference_mode()
def _teacher_heads(
    encoder: Encoder, clips: Clips, heads: set[str], ridge: float = 1e-2
) -> dict[str, Tensor]:
    """Ridge regression from the latents of the clips to what the teacher says of them."""
    rows = (clips.teacher["known"] & ~clips.held_out).nonzero().flatten()
    latent = torch.cat(
        [encoder.encode(clips.features[part].float()).latent for part in rows.split(BATCH)]
    ).double()
    mean = latent.mean(0)
    x = latent - mean
    gram = x.T @ x / len(x)
    gram += ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    out: dict[str, Tensor] = {}
    for name in sorted(heads):
        y = clips.teacher[name][rows].double()
        weight = torch.linalg.solve(gram, x.T @ (y - y.mean(0)) / len(x)).T
        out[f"distil_heads.{name}.weight"] = weight.float().clone()
        out[f"distil_heads.{name}.bias"] = (y.mean(0) - weight @ mean).float().clone()
    return out
