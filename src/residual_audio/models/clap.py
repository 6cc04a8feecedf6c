"""A loaded model: front-end, encoder, joint head and text tower behind one door."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.audio.windows import LongPolicy, fit_windows
from residual_audio.errors import InputError, ModelError
from residual_audio.models.encoder import Edit, Encoded, Encoder, Features, State, Tap
from residual_audio.models.evaluating import evaluating, full_precision
from residual_audio.models.joint import JointHead
from residual_audio.models.training_data import TrainingData

Vectors = npt.NDArray[np.float32]


class AudioTextModel(nn.Module):
    """Audio and, where the model has it, text in one space."""

    def __init__(
        self,
        *,
        name: str,
        family: str,
        front_end: nn.Module,
        encoder: Encoder,
        head: JointHead,
        text: nn.Module | None,
        logit_scale: float,
        sha256: str,
    ) -> None:
        super().__init__()
        self.name = name
        self.family = family
        self.sha256 = sha256
        self.logit_scale = logit_scale
        self.trained_on: tuple[TrainingData, ...] | None = None
        """What it has heard while it learned; None where nobody knows."""
        self.front_end = front_end
        self.encoder = encoder
        self.head = head
        self.text = text
        self.eval().requires_grad_(False)

    @classmethod
    def twin(cls, model: AudioTextModel, encoder: Encoder | None = None) -> Self:
        """Another object with the same parts, in the mode they are in; the encoder may differ."""
        twin = cls.__new__(cls)
        twin.__dict__.update(model.__dict__)
        twin._modules = {**model._modules, "encoder": encoder or model.encoder}
        twin.name, twin.sha256 = model.name, model.sha256
        return twin

    @classmethod
    def copy_of(cls, model: AudioTextModel) -> Self:
        """The same with an encoder and a joint head of its own: changing them changes no other."""
        own = cls.twin(model, copy.deepcopy(model.encoder))
        own.head = copy.deepcopy(model.head)
        return own

    @property
    def spec(self) -> FrontEndSpec:
        return cast(FrontEndSpec, self.front_end.spec)

    @property
    def sample_rate_hz(self) -> int:
        return self.spec.sample_rate_hz

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.encoder.parameters()).dtype

    def encode(
        self,
        features: Features | None,
        *,
        tap: Tap | None = None,
        edit: Edit | None = None,
        start: State | None = None,
    ) -> Encoded:
        """Features (or a saved state) → latent and tokens."""
        return self.encoder.encode(features, tap=tap, edit=edit, start=start)

    def joint(self, encoded: Encoded) -> Tensor:
        """[clip, joint], not normalised."""
        return self.head(encoded)

    def windows(self, samples: npt.NDArray[np.floating], long: LongPolicy = "first") -> Vectors:
        """What this model sees of a waveform: [window, sample].

        A model that reads clips of any length (M2D, feature fusion) sees all of a long one under
        `first`; `center` and `tile` cut windows of the length it was trained on.
        """
        n_samples = self.spec.n_samples
        if long == "first" and self.any_length:
            n_samples = max(n_samples, len(samples))
        return fit_windows(samples, n_samples, self.spec.short, long)

    @property
    def any_length(self) -> bool:
        """Whether the model reads all of a clip that is longer than its window."""
        return self.spec.fusion or self.encoder.any_length

    def reads_s(self, long: LongPolicy) -> float | None:
        """Seconds of a clip that are looked at; None for all."""
        return None if long == "tile" or (long == "first" and self.any_length) else self.window_s

    @property
    def window_s(self) -> float:
        """Seconds of a window."""
        return self.spec.duration_s

    def features(self, waves: Tensor) -> Features:
        """Windows [window, sample] → what the encoder reads, in its precision."""
        found: Features = self.front_end(waves)
        if isinstance(found, tuple):
            return found[0].to(self.dtype), found[1]
        return found.to(self.dtype)

    def embed_windows(self, waves: Tensor) -> Tensor:
        """Windows [window, sample] → [window, joint], not normalised."""
        return self.joint(self.encode(self.features(waves)))

    @property
    def joint_dim(self) -> int:
        """Width of the joint space."""
        config = self.head.config
        return int(config.get("d_out", config.get("d_in", 0)))

    @torch.inference_mode()
    def embed_text(self, texts: Sequence[str], *, batch_size: int = 64) -> Vectors:
        """Texts → unit vectors [n, d]."""
        if self.text is None:
            raise ModelError(
                f"'{self.name}' is an audio-only model: it has no text side, so prompts, zero-shot "
                "classification and retrieval are not possible with it"
            )
        if isinstance(texts, str):
            raise InputError("embed_text takes a list of texts, not a single one")
        chunks = [list(texts[i : i + batch_size]) for i in range(0, len(texts), batch_size)]
        with evaluating(self.text), full_precision(self.device):
            parts = [nn.functional.normalize(self.text(chunk).float(), dim=-1) for chunk in chunks]
        return (
            torch.cat(parts).cpu().numpy() if parts else np.zeros((0, self.joint_dim), np.float32)
        )


def choose_device(device: str | torch.device) -> torch.device:
    """`auto` takes CUDA, then Apple's MPS, then the CPU."""
    if isinstance(device, torch.device):
        return device
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"unknown device '{device}': use auto, cpu, cuda or mps") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device '{device}' was asked for, but torch sees no CUDA device")
    return chosen
