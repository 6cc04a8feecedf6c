"""A loaded model: front-end, encoder, joint head and text tower behind one door."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from residual_audio.audio.decode import load_audio
from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.audio.prefetch import prefetch
from residual_audio.audio.windows import LongPolicy, fit_windows
from residual_audio.engine.cores import stream_clips
from residual_audio.errors import AudioError, InputError, ModelError
from residual_audio.models.encoder import Edit, Encoded, Encoder, Features, State, Tap
from residual_audio.models.joint import JointHead
from residual_audio.types import Site

Embedding = npt.NDArray[np.float32]
AudioInput = str | Path | npt.NDArray[Any]
"""A file, or a mono waveform already at the model's sample rate."""


class AudioTextModel(nn.Module):
    """Audio and, where the model has it, text in one space."""

    def __init__(
        self,
        *,
        name: str,
        family: str,
        front_end: nn.Module,
        encoder: nn.Module,
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
        self.front_end = front_end
        self._encoder = encoder
        self.head = head
        self.text = text
        self.eval().requires_grad_(False)

    @property
    def encoder(self) -> Encoder:
        return cast(Encoder, self._encoder)

    @property
    def spec(self) -> FrontEndSpec:
        return cast(FrontEndSpec, self.front_end.spec)

    @property
    def sample_rate_hz(self) -> int:
        return self.spec.sample_rate_hz

    @property
    def device(self) -> torch.device:
        return next(self._encoder.parameters()).device

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

    def windows(self, samples: npt.NDArray[Any], long: LongPolicy = "first") -> Embedding:
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
        return self.spec.fusion or bool(getattr(self._encoder, "any_length", False))

    def reads_s(self, long: LongPolicy) -> float | None:
        """Seconds of a clip that are looked at; None for all."""
        return self.spec.duration_s if long == "first" and not self.any_length else None

    @torch.inference_mode()
    def embed_audio(
        self,
        items: Sequence[AudioInput],
        *,
        batch_size: int = 8,
        long: LongPolicy = "first",
        n_threads: int = 2,
        progress: Callable[[int], None] | None = None,
    ) -> Embedding:
        """Files or waveforms → unit vectors [n, d]; the same input always gives the same vector.

        `progress` is told how many clips are done.
        """
        if isinstance(items, (str, Path, np.ndarray)):
            raise InputError("embed_audio takes a list of files or waveforms, not a single one")
        vectors: list[Tensor] = []
        owners: list[int] = []

        def embed(waves: Tensor, owner: Sequence[int]) -> tuple[Tensor, Sequence[int]]:
            joint = self.joint(self.encode(self.front_end(waves)))
            return nn.functional.normalize(joint.float(), dim=-1).cpu(), owner

        with closing(self.batches(items, batch_size, long, n_threads)) as batches:
            for some, owner in stream_clips(embed, batches):
                vectors.append(some)
                owners += owner
                if progress is not None:
                    progress(owners[-1] + 1)
        if not vectors:
            return np.zeros((0, self.joint_dim), np.float32)
        summed = torch.zeros(len(items), vectors[0].shape[1])
        summed.index_add_(0, torch.tensor(owners), torch.cat(vectors))
        return nn.functional.normalize(summed, dim=-1).numpy()

    @property
    def joint_dim(self) -> int:
        """Width of the joint space."""
        config = self.head.config
        return int(config.get("d_out", config.get("d_in", 0)))

    def batches(
        self,
        items: Sequence[AudioInput],
        batch_size: int = 8,
        long: LongPolicy = "first",
        n_threads: int = 2,
    ) -> Generator[tuple[Tensor, list[int]], None, None]:
        """Windows of equal length in batches, with the clip that each belongs to."""
        waiting: list[npt.NDArray[Any]] = []
        owner: list[int] = []

        def batch() -> Tensor:
            return torch.from_numpy(np.stack(waiting)).to(self.device)

        def read(item: AudioInput) -> Embedding:
            if isinstance(item, (str, Path)):
                wave = load_audio(Path(item), self.sample_rate_hz, self.reads_s(long))
                return self.windows(wave, long)
            wave = np.asarray(item, np.float32)
            if not np.isfinite(wave).all():
                raise AudioError("a waveform holds NaN or infinite samples")
            return self.windows(wave, long)

        # Closed at once, also when a clip raises: its threads must not wait for the collector.
        with closing(prefetch(items, read, n_threads, 2 * batch_size)) as stream:
            for i, (_, windows, error) in enumerate(stream):
                if error is not None:
                    raise error
                assert windows is not None
                for window in windows:
                    if waiting and len(waiting[0]) != len(window):
                        yield batch(), owner
                        waiting, owner = [], []
                    waiting.append(window)
                    owner.append(i)
                    if len(waiting) == batch_size:
                        yield batch(), owner
                        waiting, owner = [], []
        if waiting:
            yield batch(), owner

    @torch.inference_mode()
    def embed_text(self, texts: Sequence[str], *, batch_size: int = 64) -> Embedding:
        """Texts → unit vectors [n, d]."""
        if self.text is None:
            raise ModelError(
                f"'{self.name}' is an audio-only model: it has no text side, so prompts, zero-shot "
                "classification and retrieval are not possible with it"
            )
        if isinstance(texts, str):
            raise InputError("embed_text takes a list of texts, not a single one")
        chunks = [list(texts[i : i + batch_size]) for i in range(0, len(texts), batch_size)]
        parts = [nn.functional.normalize(self.text(chunk).float(), dim=-1) for chunk in chunks]
        return (
            torch.cat(parts).cpu().numpy() if parts else np.zeros((0, self.joint_dim), np.float32)
        )


class _HeadSums:
    """Checks at every attention site that the heads, through W_O, sum to what the site adds."""

    points = frozenset({"raw", "out"})

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.raw: Tensor | None = None
        self.worst: tuple[float, Site | int | None] = (0.0, None)

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if not isinstance(where, Site) or where.kind != "attention":
            return
        if point == "raw":
            self.raw = value
            return
        assert self.raw is not None
        weight, bias = self.encoder.output_projection(where)
        heads = weight.unflatten(0, (where.n_heads, where.d_head))
        total = torch.einsum("cthd,hdw->ctw", self.raw, heads) + bias
        error = float((total - value).abs().max() / value.abs().max().clamp(min=1e-12))
        if not error <= self.worst[0]:
            self.worst = (error, where)


@torch.inference_mode()
def prove(model: AudioTextModel) -> None:
    """Run a dummy batch once: shapes, finite values, heads sum to the attention output."""
    waves = torch.randn(1, model.spec.n_samples, generator=torch.Generator().manual_seed(0)) * 0.1
    tap = _HeadSums(model.encoder)
    try:
        encoded = model.encode(model.front_end(waves.to(model.device)), tap=tap)
        joint = model.joint(encoded)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ModelError(f"'{model.name}' does not run on a dummy clip: {error}") from error
    if joint.ndim != 2 or len(joint) != 1:
        raise ModelError(
            f"'{model.name}' gave an embedding of shape {tuple(joint.shape)} for a clip"
        )
    if not bool(torch.isfinite(joint).all()):
        raise ModelError(f"'{model.name}' gives values that are not finite for a dummy clip")
    if not tap.worst[0] < 1e-3:
        raise ModelError(
            f"'{model.name}': heads do not sum to the attention output at {tap.worst[1]} "
            f"(relative error {tap.worst[0]:.1e})"
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
