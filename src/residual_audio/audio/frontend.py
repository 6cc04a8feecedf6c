"""One log-mel front-end for every model family: a spec that says how, a torch module that does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor, nn

from residual_audio.audio.filters import MelScale, mel_filters
from residual_audio.audio.windows import ShortRule
from residual_audio.errors import InputError

LogKind = Literal["db", "ln", "ln-add", "log10-whisper"]
WindowKind = Literal["hann", "hanning"]

# A block of frames and its spectrum stay in the second-level cache of one core.
_FRAMES_AT_ONCE = 256
# On an accelerator the opposite holds: few, large kernels.
_CLIPS_AT_ONCE_DEVICE = 16


@dataclass(frozen=True)
class FrontEndSpec:
    """How a model family turns a waveform into the log-mel its encoder was trained on."""

    sample_rate_hz: int
    n_samples: int
    """Length of one window; with the short rule `keep`, only the longest."""
    n_fft: int
    hop_length: int
    n_mels: int
    f_min_hz: float
    f_max_hz: float
    win_length: int | None = None
    """None: the same as `n_fft`."""
    filter_rate_hz: int | None = None
    """Rate the mel filters are built for, where it is not the rate of the audio (Microsoft)."""
    mel_scale: MelScale = "slaney"
    mel_norm: Literal["slaney"] | None = "slaney"
    log: LogKind = "db"
    """`db`: 10 log10 max(x, ε). `ln`: ln max(x, ε). `ln-add`: ln(x + ε). `log10-whisper`: log10,
    at most 8 decades below the loudest bin of the clip, then (x + 4) / 4."""
    log_eps: float = 1e-10
    center: bool = True
    """True: frames centred on multiples of the hop, ends mirrored. False: only whole frames."""
    window: WindowKind = "hann"
    """`hann` is periodic (STFT), `hanning` symmetric (kaldi)."""
    preemphasis: float = 0.0
    remove_dc: bool = False
    """Subtract each frame's mean (kaldi)."""
    short: ShortRule = "repeat-pad"
    quantise: bool = False
    """LAION's int16 round trip: trunc(clip(x) · 32767) / 32767."""
    drop_last_frame: bool = False
    n_frames: int | None = None
    """Pad with zeros (in the log domain, before normalisation) or cut to this many frames."""
    mean: float | None = None
    """Normalisation (x − mean) / std; None for none."""
    std: float | None = None
    fusion: bool = False
    """Four channels, long clips keep their whole length (see `audio.fusion`)."""

    def __post_init__(self) -> None:
        for name in ("sample_rate_hz", "n_samples", "n_fft", "hop_length", "n_mels"):
            if getattr(self, name) < 1:
                raise InputError(f"front-end: {name} must be positive, got {getattr(self, name)}")
        if self.frame_length > self.n_fft:
            raise InputError(
                f"front-end: win_length {self.win_length} is longer than n_fft {self.n_fft}"
            )
        if (self.mean is None) != (self.std is None):
            raise InputError("front-end: mean and std go together, one of them is missing")

    @property
    def frame_length(self) -> int:
        return self.n_fft if self.win_length is None else self.win_length

    @property
    def duration_s(self) -> float:
        return self.n_samples / self.sample_rate_hz

    def count_frames(self, n_samples: int) -> int:
        """Frames that come out of `n_samples` samples."""
        if self.n_frames is not None:
            return self.n_frames
        if self.center:
            count = 1 + max(n_samples, self.n_fft // 2 + 1) // self.hop_length
        else:
            length = self.frame_length
            count = 1 + (max(n_samples, length) - length) // self.hop_length
        return count - self.drop_last_frame

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FrontEndSpec:
        unknown = sorted(set(values) - {f.name for f in fields(cls)})
        if unknown:
            raise InputError(f"front-end: unknown settings {', '.join(unknown)}")
        return cls(**values)


class LogMel(nn.Module):
    """Waveforms [b, n] → log-mel [b, frames, n_mels], float32.

    On a CPU each clip is computed by itself, in blocks of frames: the result does not depend on
    which clips share the batch, and memory beyond input and output is a few megabytes.
    """

    filters: Tensor
    window: Tensor

    def __init__(self, spec: FrontEndSpec, filters: Any = None) -> None:
        super().__init__()
        self.spec = spec
        n_bins = spec.n_fft // 2 + 1
        if filters is None:
            filters = mel_filters(
                spec.n_fft,
                spec.n_mels,
                spec.f_min_hz,
                spec.f_max_hz,
                spec.filter_rate_hz or spec.sample_rate_hz,
                spec.mel_scale,
                spec.mel_norm,
            )
        bank = torch.as_tensor(filters).to(torch.float32).contiguous()
        if bank.shape != (n_bins, spec.n_mels):
            raise InputError(
                f"mel filters have the shape {tuple(bank.shape)}, "
                f"expected (bins, mels) = {(n_bins, spec.n_mels)}"
            )
        self.register_buffer("filters", bank)
        window = torch.hann_window(
            spec.frame_length, periodic=spec.window == "hann", dtype=torch.float64
        )
        if spec.center and spec.frame_length < spec.n_fft:
            left = (spec.n_fft - spec.frame_length) // 2
            window = nn.functional.pad(window, (left, spec.n_fft - spec.frame_length - left))
        self.register_buffer("window", window.to(torch.float32), persistent=False)

    def forward(self, waves: Tensor) -> Tensor:
        if waves.ndim != 2 or waves.shape[1] == 0:
            raise InputError(f"expected waveforms [clip, sample], got {tuple(waves.shape)}")
        waves = waves.to(device=self.filters.device, dtype=torch.float32)
        bands = _bands(self.filters)
        at_once = 1 if waves.device.type == "cpu" else _CLIPS_AT_ONCE_DEVICE
        parts = [self._log_mel(group, bands) for group in waves.split(at_once)]
        if not parts:
            return waves.new_zeros(0, self.spec.count_frames(waves.shape[1]), self.spec.n_mels)
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _log_mel(self, waves: Tensor, bands: list[_Band]) -> Tensor:
        spec = self.spec
        if spec.quantise:
            waves = (waves.clamp(-1.0, 1.0) * 32767.0).trunc() / 32767.0
        frames = self._frames(waves)  # clip frame sample
        n_frames = frames.shape[1] - spec.drop_last_frame
        if spec.n_frames is not None:
            n_frames = min(n_frames, spec.n_frames)
        frames = frames[:, :n_frames]
        power = waves.new_empty(len(waves), n_frames, spec.n_mels)
        step = _FRAMES_AT_ONCE if waves.device.type == "cpu" else max(n_frames, 1)
        for start in range(0, n_frames, step):
            self._mel_power(frames[:, start : start + step], bands, power[:, start : start + step])
        x = self._log(power)
        if spec.n_frames is not None and n_frames < spec.n_frames:
            x = nn.functional.pad(x, (0, 0, 0, spec.n_frames - n_frames))
        if spec.mean is not None and spec.std is not None:
            x = (x - spec.mean) / spec.std
        return x

    def _frames(self, waves: Tensor) -> Tensor:
        """Overlapping views [clip, frame, sample]; too short a wave is filled with silence."""
        spec = self.spec
        side = spec.n_fft // 2
        shortest = side + 1 if spec.center else spec.frame_length
        if waves.shape[1] < shortest:
            waves = nn.functional.pad(waves, (0, shortest - waves.shape[1]))
        if not spec.center:
            return waves.unfold(1, spec.frame_length, spec.hop_length)
        mirrored = nn.functional.pad(waves, (side, side), mode="reflect")
        return mirrored.unfold(1, spec.n_fft, spec.hop_length)

    def _mel_power(self, frames: Tensor, bands: list[_Band], out: Tensor) -> None:
        spec = self.spec
        if spec.remove_dc:
            frames = frames - frames.mean(dim=-1, keepdim=True)
        if spec.preemphasis:
            before = torch.cat((frames[..., :1], frames[..., :-1]), dim=-1)
            frames = frames - spec.preemphasis * before
        spectrum = torch.fft.rfft(frames * self.window, n=spec.n_fft)  # clip frame bin
        for band in bands:
            part = spectrum[..., band.bins]
            energy = part.real.square() + part.imag.square()
            out[..., band.mels] = energy @ band.weights

    def _log(self, power: Tensor) -> Tensor:
        spec = self.spec
        if spec.log == "ln-add":
            return (power + spec.log_eps).log()
        floored = power.clamp_min(spec.log_eps)
        if spec.log == "ln":
            return floored.log()
        if spec.log == "db":
            return floored.log10() * 10.0
        x = floored.log10()
        loudest = x.amax(dim=(1, 2), keepdim=True)
        return (torch.maximum(x, loudest - 8.0) + 4.0) / 4.0


@dataclass(frozen=True)
class _Band:
    """A run of neighbouring filters and the only bins they look at."""

    bins: slice
    mels: slice
    weights: Tensor


def _bands(filters: Tensor, n_bands: int = 1) -> list[_Band]:
    """Split a filter bank into runs of mels; most of the full matrix is zeros.

    Mels without any weight keep one bin, so that every mel is written.
    """
    n_mels = filters.shape[1]
    edges = [round(i * n_mels / n_bands) for i in range(n_bands + 1)]
    bands = []
    for low, high in zip(edges, edges[1:], strict=False):
        used = filters[:, low:high].ne(0).any(dim=1).nonzero().flatten().tolist() or [0]
        bins = slice(used[0], used[-1] + 1)
        mels = slice(low, high)
        bands.append(_Band(bins, mels, filters[bins, mels].contiguous()))
    return bands
