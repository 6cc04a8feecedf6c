"""The audio side on class labels alone: what a contrastive model is to be compared with.

Everything else is as in the audio stage (encoder, head, augmentation, budget, seed), but no text is
heard: each clip is told apart by learned vectors of the classes of its data set.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from residual_audio.errors import InputError
from residual_audio.training.audio_stage import AudioTask
from residual_audio.training.augment import augment
from residual_audio.training.recipe import Recipe
from residual_audio.training.training_clips import Clips
from residual_audio.training.training_loop import generator


class LabelTask(AudioTask):
    """Cross-entropy over learned class vectors, and nothing else."""

    def __init__(self, recipe: Recipe, clips: Clips) -> None:
        super().__init__(recipe, clips, None, {}, recipe.audio.optimisation, 0.0)
        draw = torch.Generator().manual_seed(recipe.seed)
        d = recipe.text.d_out
        vectors = torch.randn(len(clips.classes), d, generator=draw) / math.sqrt(d)
        self.module.register_parameter("class_vectors", nn.Parameter(vectors))

    def _class_vectors(self) -> Tensor:
        return nn.functional.normalize(self.module.get_parameter("class_vectors").float(), dim=-1)

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        batch = self.batches.at(step)
        device = self.module.log_scale.device
        mixed = augment(
            self.clips.features[batch.rows].float(),
            batch.movable,
            self.augmentation,
            self.floor,
            generator(self.seed, 0, step),
        )
        _, audio = self.module.audio(mixed.features.to(device))
        with torch.autocast(device.type, enabled=False):
            loss = self._classes(audio, self._class_vectors(), batch, mixed, device)
        scale = float(self.module.scale.detach())
        return loss, {"classes": float(loss.detach()), "scale": scale}

    def look(self, step: int) -> dict[str, object]:
        """As in the audio stage, with the class vectors in the place of prompts."""
        return self.probe.look(self.module, self._class_vectors().detach(), step, self.folder)


def check_labels_alone(recipe: Recipe, further: bool) -> None:
    """Without a text side there is nothing for later stages to begin with."""
    if recipe.tune is not None or further:
        raise InputError(
            f"recipe '{recipe.name}': trained on labels alone the model has no text side; take out "
            "the stages after the audio stage"
        )
