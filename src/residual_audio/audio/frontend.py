"""One log-mel front-end for every model family: a spec says how, a torch module does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from residual_audio.audio.codec_spec import CodecSpec
from residual_audio.audio.filters import MelScale, mel_filters
from residual_audio.audio.front_end_bounds import check_front_end
from residual_audio.audio.windows import ShortRule
from residual_audio.engine.cores import on_single_cores
from residual_audio.errors import InputError

LogKind = Literal["db", "ln", "ln-add", "log10-whisper"]
WindowKind = Literal["hann", "hanning"]

# Blocks small enough for the cache, large enough that threads seldom wait for the interpreter.
_FRAMES_AT_ONCE = 251
# On an accelerator the opposite of one clip at a time holds: few, large kernels.
_CLIPS_AT_ONCE_DEVICE = 16
# A float32 FFT adds noise of about 1.6e-14 E (measured) to each bin, E the energy of the frame. It
# moves a mel of power P by a relative 2 sqrt(1.6e-14 S E / P), S = ΣF²/ΣF of its filter. Below
# P = 1e-6 S E that is more than 2.5e-4 (0.001 dB), and the frame is done again in float64.
_QUIET = 1e-6

MelBank = npt.NDArray[np.floating] | Tensor
"""Filters [bin, mel]."""


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
    """Four channels, long clips keep their whole length (see `audio.fusion`). A filter bank in such
    a checkpoint belongs to the unfused front-end: do not load it."""
    codec: CodecSpec | None = None
    """Features are what a codec's encoder makes of the waveform, `n_mels` of them a frame; the
    settings of the spectrum then say nothing."""

    def __post_init__(self) -> None:
        kinds = {"log": get_args(LogKind), "window": get_args(WindowKind)}
        check_front_end(vars(self), kinds)
        if self.frame_length > self.n_fft:
            raise InputError(
                f"front-end: win_length {self.win_length} is longer than n_fft {self.n_fft}"
            )
        if self.codec is not None and self.codec.hop_length != self.hop_length:
            raise InputError(
                f"front-end: a hop of {self.hop_length}, but its codec makes a frame of every "
                f"{self.codec.hop_length} samples"
            )
        if (self.mean is None) != (self.std is None):
            raise InputError("front-end: mean and std go together, one of them is missing")

    @property
    def frame_length(self) -> int:
        return self.n_fft if self.win_length is None else self.win_length

    @property
    def duration_s(self) -> float:
        return self.n_samples / self.sample_rate_hz

    def count_frames(self, n_samples: int, pad: bool = True) -> int:
        """Frames that come out of `n_samples` samples; without `pad`, only those with sound."""
        if self.codec is not None:
            return -(-n_samples // self.hop_length)
        if pad and self.n_frames is not None:
            return self.n_frames
        if self.center:
            count = 1 + max(n_samples, self.n_fft // 2 + 1) // self.hop_length
        else:
            length = self.frame_length
            count = 1 + (max(n_samples, length) - length) // self.hop_length
        count -= self.drop_last_frame
        return count if self.n_frames is None else min(count, self.n_frames)

    def to_dict(self) -> dict[str, object]:
        found = asdict(self)
        if self.codec is None:  # a log-mel is described as it always was
            del found["codec"]
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FrontEndSpec:
        unknown = sorted(set(values) - {f.name for f in fields(cls)})
        if unknown:
            raise InputError(f"front-end: unknown settings {', '.join(unknown)}")
        codec = values.get("codec")
        return cls(**{**values, "codec": None if codec is None else CodecSpec(**codec)})


class LogMel(nn.Module):
    """Waveforms [b, n] → log-mel [b, frames, n_mels], float32.

    On a CPU each clip is computed by itself, in blocks of frames: the result does not depend on
    which clips share the batch, and memory beyond input and output is a few megabytes.
    """

    filters: Tensor
    window: Tensor

    def __init__(self, spec: FrontEndSpec, filters: MelBank | None = None) -> None:
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
        self.window64 = window  # not a buffer: module.to(dtype) would round it
        self._bank_cache: tuple[Tensor, int, _Bank] | None = None

    @torch.no_grad()
    def forward(self, waves: Tensor) -> Tensor:
        if waves.ndim != 2 or waves.shape[1] == 0:
            raise InputError(f"expected waveforms [clip, sample], got {tuple(waves.shape)}")
        spec = self.spec
        waves = waves.to(device=self.filters.device, dtype=torch.float32)
        n_frames = spec.count_frames(waves.shape[1], pad=False)
        x = waves.new_empty(len(waves), n_frames, spec.n_mels)
        bank = self._bank()
        at_once = 1 if waves.device.type == "cpu" else _CLIPS_AT_ONCE_DEVICE
        groups = list(zip(waves.split(at_once), x.split(at_once), strict=True)) if len(x) else []

        def work(jobs: Iterator[int]) -> None:
            room = None
            for job in jobs:
                group, out = groups[job]
                room = self._prepare(group, room)
                self._log_mel(room[: len(group)], bank, out)

        if waves.device.type == "cpu":
            on_single_cores(work, len(groups))
        else:
            work(iter(range(len(groups))))
        if spec.n_frames is not None and n_frames < spec.n_frames:
            x = nn.functional.pad(x, (0, 0, 0, spec.n_frames - n_frames))
        if spec.mean is not None and spec.std is not None:
            x = (x - spec.mean) / spec.std
        return x

    def _bank(self) -> _Bank:
        """Prepared once for these filters; the cache keeps them, so that none can be mistaken."""
        filters = self.filters
        version = 0 if filters.is_inference() else filters._version  # such tensors have none
        kept = self._bank_cache
        if kept is None or kept[0] is not filters or kept[1] != version:
            self._bank_cache = kept = (filters, version, _split_bank(filters.float()))
        return kept[2]

    def _log_mel(self, room: Tensor, bank: _Bank, out: Tensor) -> None:
        frames = room.unfold(1, self.window.shape[0], self.spec.hop_length)  # clip frame sample
        frames = frames[:, : out.shape[1]]
        if room.device.type == "cpu":
            self._mel_power_cpu(room[0], frames[0], bank, out[0])
        else:
            # Accelerators do it all in float64, which costs them little; Apple's have none.
            wide = room.device.type != "mps"
            window = self.window64.to(room.device) if wide else self.window
            _mel_power(self._shape(frames.to(window.dtype), window), self.spec.n_fft, bank, out)
        self._log(out)

    def _mel_power_cpu(self, wave: Tensor, frames: Tensor, bank: _Bank, out: Tensor) -> None:
        """One clip: in float32, then frames with mels too quiet for it again (see `_QUIET`)."""
        spec = self.spec
        blocks = zip(frames.split(_FRAMES_AT_ONCE), out.split(_FRAMES_AT_ONCE), strict=True)
        for some, power in blocks:
            _mel_power(self._shape(some, self.window), spec.n_fft, bank, power)
        low, high = torch.aminmax(wave)
        loudest = max(-float(low), float(high))
        # A bound on any frame's energy costs little and clears most clips at once.
        bound = (loudest * (1 + spec.preemphasis) * (1 + spec.remove_dc)) ** 2 * len(self.window)
        quietest = (out.clamp_min(spec.log_eps) * bank.sharpness).amin(-1)  # frame
        perhaps = quietest < _QUIET * bound
        if not bool(perhaps.any()):
            return
        for rows in perhaps.nonzero().flatten().split(_FRAMES_AT_ONCE):
            some = frames.index_select(0, rows)
            energy = self._shape(some, self.window).square().sum(-1)
            quiet = quietest[rows] < _QUIET * energy
            if bool(quiet.any()):
                again = self._shape(some[quiet].double(), self.window64)
                exact = out.new_empty(len(again), spec.n_mels)
                _mel_power(again, spec.n_fft, bank, exact)
                out.index_copy_(0, rows[quiet], exact)

    def _prepare(self, waves: Tensor, room: Tensor | None) -> Tensor:
        """The waves with mirrored ends, in `room` when it fits; too short ones get silence."""
        spec = self.spec
        side = spec.n_fft // 2 if spec.center else 0
        shortest = side + 1 if spec.center else spec.frame_length
        n = max(waves.shape[1], shortest)
        if room is None or len(room) < len(waves):
            room = waves.new_zeros(len(waves), n + 2 * side)
        inside = room[: len(waves)]
        middle = inside[:, side : side + n]
        middle[:, : waves.shape[1]] = waves
        if spec.quantise:
            middle.clamp_(-1.0, 1.0).mul_(32767.0).trunc_().div_(32767.0)
        if side:
            inside[:, :side] = middle[:, 1 : side + 1].flip(1)
            inside[:, side + n :] = middle[:, n - side - 1 : n - 1].flip(1)
        return room

    def _shape(self, frames: Tensor, window: Tensor) -> Tensor:
        spec = self.spec
        if spec.remove_dc:
            frames = frames - frames.mean(dim=-1, keepdim=True)
        if spec.preemphasis:
            before = torch.cat((frames[..., :1], frames[..., :-1]), dim=-1)
            frames = frames - spec.preemphasis * before
        return frames * window

    def _log(self, power: Tensor) -> None:
        """In place."""
        spec = self.spec
        if spec.log == "ln-add":
            power.add_(spec.log_eps).log_()
            return
        power.clamp_min_(spec.log_eps)
        if spec.log == "ln":
            power.log_()
        elif spec.log == "db":
            power.log10_().mul_(10.0)
        else:
            power.log10_()
            loudest = power.amax(dim=(1, 2), keepdim=True)
            power.copy_((torch.maximum(power, loudest - 8.0) + 4.0) / 4.0)


@dataclass(frozen=True)
class _Band:
    """A run of neighbouring filters and the only bins they look at."""

    first: int
    """Counted from the first bin of the bank."""
    n_bins: int
    weights: Tensor


@dataclass(frozen=True)
class _Bank:
    """A filter bank made ready: most of it is zeros, which runs of neighbours skip."""

    bands: list[_Band]
    n_mels: list[int]
    """Filters of each band."""
    first: int
    n_bins: int
    """Other bins are in no filter."""
    sharpness: Tensor
    """[mel] ΣF / ΣF² (see `_QUIET`)."""


def _split_bank(filters: Tensor) -> _Bank:
    """Three runs: half of the filters, a quarter, a quarter."""
    weights = filters.detach().cpu().numpy()  # numpy does not wake all cores for so little
    n_mels = filters.shape[1]
    runs = []
    for low, high in pairwise((0, n_mels // 2, n_mels - n_mels // 4, n_mels)):
        used = np.flatnonzero((weights[:, low:high] != 0).any(axis=1))
        first, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
        runs.append((first, end, filters[first:end, low:high].contiguous()))
    sharpness = weights.sum(0) / np.maximum(np.square(weights).sum(0), 1e-30)
    start = min(first for first, _, _ in runs)
    return _Bank(
        [_Band(first - start, end - first, part) for first, end, part in runs],
        [part.shape[1] for _, _, part in runs],
        start,
        max(end for _, end, _ in runs) - start,
        torch.from_numpy(sharpness).to(filters.device),
    )


def _mel_power(frames: Tensor, n_fft: int, bank: _Bank, out: Tensor) -> None:
    """Windowed frames [..., sample] → mel power [..., mel], written to `out`.

    Few, cheap calls: threads that each have a clip meet only in the interpreter.
    """
    spectrum = torch.fft.rfft(frames, n=n_fft).narrow(-1, bank.first, bank.n_bins)
    real, imaginary = torch.view_as_real(spectrum).square_().unbind(-1)
    power = (real + imaginary).to(out.dtype)  # … bin
    for band, mels in zip(bank.bands, out.split(bank.n_mels, dim=-1), strict=True):
        torch.matmul(power.narrow(-1, band.first, band.n_bins), band.weights, out=mels)
