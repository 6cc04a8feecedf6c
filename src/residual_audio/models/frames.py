"""Stretching a log-mel in time to the frames that an encoder reads."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.errors import InputError


def resize_frames(x: Tensor, n_frames: int) -> Tensor:
    """[n, frame, mel] → [n, n_frames, mel] by bicubic interpolation with aligned corners."""
    if x.shape[1] == n_frames:
        return x
    if x.shape[1] > n_frames:
        raise InputError(f"{x.shape[1]} frames do not fit the encoder's {n_frames}")
    frames, weights = bicubic_taps(x.shape[1], n_frames)
    return sum(
        x.index_select(1, frame.to(x.device)) * weight.to(x)[:, None]
        for frame, weight in zip(frames, weights, strict=True)
    )


@lru_cache(maxsize=8)
def bicubic_taps(n_in: int, n_out: int) -> tuple[Tensor, Tensor]:
    """[4, n_out] frames and weights of torch's bicubic interpolation (a = −0.75)."""
    with torch.inference_mode(False):  # cached: it must serve passes with gradients too
        identity = torch.eye(n_in, dtype=torch.float32)[None, None]
        size = (n_in, n_out)
        matrix = F.interpolate(identity, size=size, mode="bicubic", align_corners=True)[0, 0]
        frames = matrix.abs().topk(4, dim=0).indices
        return frames, matrix.gather(0, frames)
