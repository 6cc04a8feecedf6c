"""Second stage: audio and text meet. Contrastive training with several positives, and a teacher."""

from __future__ import annotations

import copy
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residual_audio.audio.frontend import LogMel
from residual_audio.errors import InputError
from residual_audio.models.encoder import Encoded
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import MLP, JointHead, Linear
from residual_audio.models.text_small import SmallText
from residual_audio.models.training_data import training_data_record
from residual_audio.progress import Progress
from residual_audio.training.augment import Mixed, augment
from residual_audio.training.batches import Batch, Batches, all_texts
from residual_audio.training.losses import (
    at_most,
    cosine_distance,
    masked_mean,
    multi_positive,
    symmetric_contrastive,
)
from residual_audio.training.recipe import AudioRecipe, Optimisation, Recipe
from residual_audio.training.tracking import Probe
from residual_audio.training.training_clips import Clips, front_end_spec, trained_on
from residual_audio.training.training_loop import generator, train

MAX_SCALE = 100.0


def encoder_config(recipe: AudioRecipe) -> HTSATConfig:
    """HTS-AT as the recipe wants it; what it does not say is as in the tiny size."""
    known = HTSATConfig().to_dict()
    if unknown := sorted(set(recipe.encoder) - set(known)):
        raise InputError(f"HTS-AT has no setting '{unknown[0]}'; it has: {', '.join(known)}")
    return HTSATConfig.from_dict(known | recipe.encoder)


class Learner(nn.Module):
    """All that is learned: the model, its temperature, and heads that only the teacher sees."""

    text: SmallText | None

    def __init__(
        self, recipe: AudioRecipe, text: SmallText | None, d_out: int, clips: Clips, seed: int
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = HTSAT(encoder_config(recipe))
            latent = self.encoder.config.latent
            self.head: JointHead = (
                Linear(latent, d_out)
                if recipe.head == "linear"
                else MLP(latent, recipe.d_hidden, d_out)
            )
            self.distil_heads = nn.ModuleDict(
                {
                    key: nn.Linear(latent, clips.teacher[key].shape[1])
                    for key in ("embedding", "logits")
                    if key in clips.teacher
                }
            )
        # Most of what differs between clips is level. Filters that see it drown all else: tokens
        # then vary along one direction (participation ratio 1.5 instead of 7 at the start).
        with torch.no_grad():
            filters = self.encoder.patch.weight
            filters -= filters.mean((1, 2, 3), keepdim=True)
            self.encoder.patch.bias.mul_(0.1)  # type: ignore[union-attr]
        self.text = text
        self.log_scale = nn.Parameter(torch.tensor(-math.log(recipe.temperature)))
        # Statistics of the mel bands are measured once: small batches would only blur them.
        rows = clips.features[~clips.held_out].float()
        norm = self.encoder.mel_norm
        norm.running_mean.copy_(rows.mean((0, 1)))  # type: ignore[union-attr]
        norm.running_var.copy_(rows.var((0, 1)))  # type: ignore[union-attr]

    def train(self, mode: bool = True) -> Learner:
        super().train(mode)
        self.encoder.mel_norm.eval()
        return self

    @property
    def scale(self) -> Tensor:
        return at_most(self.log_scale.exp(), MAX_SCALE)

    def audio(self, features: Tensor) -> tuple[Encoded, Tensor]:
        """Log-mels → encoded clips and unit vectors."""
        encoded = self.encoder.encode(features)
        return encoded, nn.functional.normalize(self.head(encoded).float(), dim=-1)

    def texts(self, texts: list[str]) -> Tensor:
        assert self.text is not None
        return nn.functional.normalize(self.text(texts).float(), dim=-1)


@dataclass(frozen=True)
class HeardBatch:
    """Clips and texts of one batch in the joint space."""

    audio: Tensor
    latent: Tensor
    text: Tensor
    held: dict[str, Tensor]
    """Losses that hold vectors to where they should be."""
    weight: float = 1.0
    """Of all other losses of the batch."""


class AudioTask:
    """Class prompts, own texts and the teacher, on augmented log-mels.

    `anchor` holds unit vectors of all texts. Without a tower they stand in for it; with one they
    are what it should not move far from.
    """

    def __init__(
        self,
        recipe: Recipe,
        clips: Clips,
        text: SmallText | None,
        anchor: dict[str, Tensor] | None,
        settings: Optimisation,
        text_lr: float,
    ) -> None:
        self.recipe, self.clips, self.seed = recipe.audio, clips, recipe.seed
        self.text_lr = text_lr
        self.augmentation = recipe.audio.augment
        self.module = Learner(recipe.audio, text, recipe.text.d_out, clips, recipe.seed)
        self.batches = Batches(recipe.audio, clips, recipe.seed, settings.batch_size)
        self.identity: dict[str, Any] = {
            "audio recipe": recipe.audio.model_dump(mode="json", exclude={"track", "optimisation"}),
            # The length may change: a run that has less time than thought can be brought to its
            # end. The schedule is then that of the new length from the step it continues at.
            "optimisation": settings.model_dump(
                mode="json", exclude={"steps", "snapshots", "checkpoint_every"}
            ),
            "seed": recipe.seed,
            "data": list(clips.fingerprints),
        }
        self.look_every = recipe.audio.track.every
        self.floor = float(clips.features.min())
        self.folder: Path | None = None
        self.probe = Probe(recipe.audio, clips)
        self.anchor = anchor
        if anchor is None and text_lr == 0:
            self.anchor = self._tower_vectors()

    @torch.inference_mode()
    def _tower_vectors(self) -> dict[str, Tensor]:
        texts = all_texts(self.recipe, self.clips)
        parts = [self.module.texts(texts[i : i + 256]) for i in range(0, len(texts), 256)]
        return dict(zip(texts, torch.cat(parts).clone(), strict=True))

    @property
    def text_learns(self) -> bool:
        return self.module.text is not None and self.text_lr > 0

    def lr_scale(self, name: str) -> float:
        return self.text_lr if name.startswith("text.") else 1.0

    def encode(self, features: Tensor, texts: list[str]) -> HeardBatch:
        """Clips and texts of a batch, and what holds them to where they should be."""
        encoded, audio = self.module.audio(features)
        text, moved = self.text_vectors(texts)
        anchored = self.text_learns and self.anchor is not None
        held = {"moved": self.recipe.text_anchor * moved} if anchored else {}
        return HeardBatch(audio, encoded.latent.float(), text, held)

    def text_vectors(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Unit vectors of texts, and how far they have moved from where they should be."""
        device = self.module.log_scale.device
        if self.anchor is None:
            now = self.module.texts(texts)
            return now, now.new_zeros(())
        before = torch.stack([self.anchor[text] for text in texts]).to(device)
        if not self.text_learns:
            return before, before.new_zeros(())
        now = self.module.texts(texts)
        return now, cosine_distance(now, before)

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        batch = self.batches.at(step)
        device = self.module.log_scale.device
        features = self.clips.features[batch.rows].float()
        mixed = augment(
            features, batch.movable, self.augmentation, self.floor, generator(self.seed, 0, step)
        )
        n = len(batch.rows)
        heard = self.encode(mixed.features.to(device), [*batch.texts, *batch.prompts])
        with torch.autocast(device.type, enabled=False):
            parts = {
                "pairs": self.recipe.pairs_weight
                * self._pairs(heard.audio, heard.text[:n], batch, mixed, device),
                "classes": self.recipe.classes_weight
                * self._classes(heard.audio, heard.text[n:], batch, mixed, device),
                **self._teacher(heard.latent, batch, mixed, device),
            }
            parts = {key: heard.weight * value for key, value in parts.items()} | heard.held
            loss = torch.stack(list(parts.values())).sum()
        numbers = {key: float(value.detach()) for key, value in parts.items()}
        return loss, {**numbers, "scale": float(self.module.scale.detach())}

    def _pairs(
        self, audio: Tensor, text: Tensor, batch: Batch, mixed: Mixed, device: torch.device
    ) -> Tensor:
        """Symmetric InfoNCE over the batch; a class prompt is positive for all of its class."""
        positive, related = batch.positives()
        weight = _blend(positive.float(), mixed)
        neither = related | related[mixed.partner]
        return symmetric_contrastive(
            audio, text, self.module.scale, weight.to(device), neither.to(device)
        )

    def _classes(
        self, audio: Tensor, prompts: Tensor, batch: Batch, mixed: Mixed, device: torch.device
    ) -> Tensor:
        """Each labelled clip against one prompt of every class of its data set."""
        labels, allowed = batch.class_targets(self.clips)
        target = _blend(labels, mixed)
        allowed = allowed | allowed[mixed.partner]
        if self.recipe.label_smoothing:
            s = self.recipe.label_smoothing
            even = allowed.float() / allowed.sum(1, keepdim=True).clamp(min=1)
            known = (target.sum(1, keepdim=True) > 0).float()
            target = (1 - s) * target + s * even * known
        logits = self.module.scale * audio @ prompts.T
        return multi_positive(logits, target.to(device), ~allowed.to(device))

    def _teacher(
        self, latent: Tensor, batch: Batch, mixed: Mixed, device: torch.device
    ) -> dict[str, Tensor]:
        """Regression to the teacher's embedding and cross-entropy to its probabilities."""
        teacher, settings = self.clips.teacher, self.recipe.distil
        if not teacher or settings is None:
            return {}
        known = teacher["known"][batch.rows]
        known = (known & known[mixed.partner]).to(device)
        out: dict[str, Tensor] = {}
        if "embedding" in teacher:
            target = _blend(teacher["embedding"][batch.rows], mixed).to(device)
            error = (self.module.distil_heads["embedding"](latent) - target).square().mean(1)
            out["embedding"] = settings.embedding_weight * masked_mean(error, known)
        if "logits" in teacher:
            p = teacher["logits"][batch.rows].sigmoid()
            own = (2 * mixed.own).clamp(max=1)[:, None]
            other = (2 * (1 - mixed.own)).clamp(max=1)[:, None]
            # both sounds are there: the probability that a tag applies to one or the other
            both = (1 - (1 - own * p) * (1 - other * p[mixed.partner])).to(device)
            guess = self.module.distil_heads["logits"](latent)
            error = nn.functional.binary_cross_entropy_with_logits(guess, both, reduction="none")
            out["tags"] = settings.logits_weight * masked_mean(error.mean(1), known)
        return out

    def look(self, step: int) -> dict[str, object]:
        prompts, _ = self.text_vectors(self.probe.prompts)
        return self.probe.look(self.module, prompts, step, self.folder)

    def save_weights(self, folder: Path) -> None:
        save_model(self.module, self.recipe, folder, {})


def _blend(rows: Tensor, mixed: Mixed) -> Tensor:
    """Targets of mixed clips: their own and their partner's, by weight."""
    own = mixed.own[:, None]
    return own * rows + (1 - own) * rows[mixed.partner]


def save_model(
    learner: Learner,
    recipe: AudioRecipe,
    folder: Path,
    extra: dict[str, Any],
    text: SmallText | None = None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """The learner as an ordinary model folder, ready for `load_model`; without a tower it is a
    model of audio alone."""
    from residual_audio.models import native
    from residual_audio.models.clap import AudioTextModel

    parts = copy.deepcopy((learner.encoder, learner.head))  # the model freezes its parts
    text = copy.deepcopy(learner.text if text is None else text)
    model = AudioTextModel(
        name=folder.name,
        family="residual-audio",
        front_end=LogMel(front_end_spec(recipe)),
        encoder=parts[0].cpu(),
        head=parts[1].cpu(),
        text=None if text is None else text.cpu(),
        logit_scale=float(learner.scale.detach()),
        sha256="",
    )
    native.save(model.to(dtype), folder, extra)  # type: ignore[arg-type]


def run_stage(
    task: AudioTask,
    settings: Optimisation,
    folder: Path,
    device: torch.device,
    progress: Progress,
    stop_after: int | None,
    tensorboard: bool,
) -> bool:
    """Train (or continue) a stage; True when it is finished."""
    task.folder = folder / "tracking"
    parts = (task.module.encoder, task.module.head)
    n = sum(p.numel() for part in parts for p in part.parameters())
    progress.note(
        f"{len(task.clips)} clips, {len(task.clips.classes)} classes, audio side: {n:,} parameters"
    )
    board = None
    if tensorboard:
        from residual_audio.training.board import open_board

        board = open_board(folder / "tensorboard")
    return train(task, settings, folder, device, progress, stop_after, board) == settings.steps


def finish(recipe: Recipe, learner: Learner, folder: Path, tower: SmallText | None) -> Path:
    """The model of a finished stage, as the recipe wants it stored."""
    shutil.rmtree(folder, ignore_errors=True)  # a model of an earlier, shorter sitting
    extra = {
        "trained": {"recipe": recipe.name, "seed": recipe.seed},
        "trained_on": training_data_record(trained_on(recipe.audio)),
    }
    dtype = torch.float16 if recipe.weights == "float16" else torch.float32
    save_model(learner, recipe.audio, folder, extra, tower, dtype)
    return folder
