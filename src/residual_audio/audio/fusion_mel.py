"""Feature fusion of LAION-CLAP: a long clip as four log-mels, its whole length and three parts.

Upstream draws the three parts at random, one from each third of the clip. Here they are the first,
the middle and the last window, so a file always gives the same features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from residual_audio.audio.frontend import FrontEndSpec, LogMel, MelBank
from residual_audio.audio.windows import fit_windows
from residual_audio.errors import InputError


def fusion_starts(n_frames: int, chunk_frames: int) -> tuple[int, int, int]:
    """First frames of the front, middle and back part."""
    last = n_frames - chunk_frames
    if last < 0:
        raise InputError(f"{n_frames} frames hold no part of {chunk_frames} frames")
    return 0, last // 2, last


def fuse(mel: Tensor, chunk_frames: int, starts: Sequence[int] | None = None) -> Tensor:
    """Log-mel [frame, mel] of a long clip → [4, chunk, mel]: whole (shrunk), front, middle, back.

    The whole is shrunk by plain bilinear interpolation without antialiasing, as transformers does.
    """
    front, middle, back = fusion_starts(len(mel), chunk_frames) if starts is None else starts
    if min(front, middle, back) < 0 or max(front, middle, back) + chunk_frames > len(mel):
        raise InputError(
            f"parts of {chunk_frames} frames at {front}, {middle} and {back} "
            f"do not lie within {len(mel)} frames"
        )
    whole = nn.functional.interpolate(
        mel[None, None], size=(chunk_frames, mel.shape[1]), mode="bilinear", align_corners=False
    )[0, 0]
    parts = [mel[start : start + chunk_frames] for start in (front, middle, back)]
    return torch.stack([whole, *parts])


class FusionLogMel(nn.Module):
    """Clips of any length → features [clip, 4, frame, mel] and whether each is `longer` [clip].

    A clip that fits the window is filled by the family's short rule and repeated in all channels.
    """

    def __init__(self, spec: FrontEndSpec, filters: MelBank | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.log_mel = LogMel(spec, filters)

    def forward(self, clips: Tensor | Sequence[npt.ArrayLike]) -> tuple[Tensor, Tensor]:
        spec = self.spec
        chunk_frames = spec.count_frames(spec.n_samples)
        if isinstance(clips, Tensor):
            clips = list(clips.detach().cpu().numpy())
        waves = [np.asarray(clip, dtype=np.float32) for clip in clips]
        short = [i for i, wave in enumerate(waves) if len(wave) <= spec.n_samples]
        features: list[Tensor | None] = [None] * len(waves)
        longer = torch.zeros(len(waves), dtype=torch.bool, device=self.log_mel.filters.device)
        if short:
            filled = [fit_windows(waves[i], spec.n_samples, spec.short) for i in short]
            for i, mel in zip(
                short, self.log_mel(torch.from_numpy(np.concatenate(filled))), strict=True
            ):
                features[i] = mel.expand(4, -1, -1)
        for i, wave in enumerate(waves):
            if len(wave) > spec.n_samples:
                mel = self.log_mel(torch.from_numpy(wave[None]))[0]
                # Less than a hop longer than the window gives no frame more: nothing to fuse.
                longer[i] = len(mel) > chunk_frames
                features[i] = fuse(mel, chunk_frames) if longer[i] else mel.expand(4, -1, -1)
        return torch.stack([f for f in features if f is not None]), longer
