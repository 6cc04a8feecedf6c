"""A codec's encoder as a front-end: waveform → frames of numbers, by convolutions that were learned
before the model and did not learn with it (DAC's, as PE-Audio uses it)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from residual_audio.audio.codec_spec import CodecSpec
from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import InputError


class Snake(nn.Module):
    """x + sin²(α x) / α, one α a channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).square()


class ResidualUnit(nn.Module):
    """A wide and a narrow convolution, added to what enters."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.snake1 = Snake(width)
        self.conv1 = nn.Conv1d(width, width, 7, dilation=dilation, padding=3 * dilation)
        self.snake2 = Snake(width)
        self.conv2 = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.snake2(self.conv1(self.snake1(x))))


class CodecBlock(nn.Module):
    """Three residual units, then every `stride` samples become one of twice the channels."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.res_unit1 = ResidualUnit(width, 1)
        self.res_unit2 = ResidualUnit(width, 3)
        self.res_unit3 = ResidualUnit(width, 9)
        self.snake1 = Snake(width)
        padding = math.ceil(stride / 2)
        self.conv1 = nn.Conv1d(width, 2 * width, 2 * stride, stride=stride, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        x = self.res_unit3(self.res_unit2(self.res_unit1(x)))
        return self.conv1(self.snake1(x))


class CodecEncoder(nn.Module):
    """[clip, 1, sample] → [clip, hidden, frame]."""

    def __init__(self, spec: CodecSpec) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(1, spec.width, 7, padding=3)
        widths = [spec.width * 2**i for i in range(len(spec.strides) + 1)]
        self.block = nn.ModuleList(
            CodecBlock(width, stride)
            for width, stride in zip(widths[:-1], spec.strides, strict=True)
        )
        self.snake1 = Snake(widths[-1])
        self.conv2 = nn.Conv1d(widths[-1], spec.hidden, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        for block in self.block:
            x = block(x)
        return self.conv2(self.snake1(x))


class CodecFrames(nn.Module):
    """Waveforms [clip, sample] → [clip, frame, n_mels]; ends are mirrored to whole frames."""

    def __init__(self, spec: FrontEndSpec) -> None:
        super().__init__()
        if spec.codec is None:
            raise InputError("this front-end has no codec")
        self.spec = spec
        self.dac_encoder = CodecEncoder(spec.codec)
        self.bottleneck = nn.Conv1d(spec.codec.hidden, spec.n_mels, 1)
        self.requires_grad_(False)

    @torch.no_grad()
    def forward(self, waves: Tensor) -> Tensor:
        if waves.ndim != 2 or waves.shape[1] == 0:
            raise InputError(f"expected waveforms [clip, sample], got {tuple(waves.shape)}")
        weight = self.bottleneck.weight
        waves = whole_frames(waves.to(weight), self.spec.hop_length)
        if self.spec.quantise:
            waves = waves.clamp(-1.0, 1.0).mul(32767.0).trunc().div(32767.0)
        # clip by clip: the first convolutions hold some hundred numbers for every sample
        frames = [self.bottleneck(self.dac_encoder(wave[None, None])) for wave in waves]
        return torch.cat(frames).transpose(1, 2) if frames else waves.new_empty(0, 0, len(weight))


def whole_frames(waves: Tensor, hop_length: int) -> Tensor:
    """The waves and, mirrored behind their end, as much of them as fills the last frame."""
    n = waves.shape[1]
    missing = -n % hop_length
    if not missing:
        return waves
    # mirrored to and fro where the clip is shorter than what is missing
    period = max(1, 2 * (n - 1))
    place = torch.arange(n, n + missing, device=waves.device) % period
    return torch.cat([waves, waves[:, torch.minimum(place, period - place)]], 1)
