"""LAION's feature fusion for long clips: the whole clip and three chunks, fused by attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _bottleneck(channels: int, hidden: int, *, pooled: bool) -> nn.Sequential:
    layers: list[nn.Module] = [nn.AdaptiveAvgPool2d(1)] if pooled else []
    layers += [
        nn.Conv2d(channels, hidden, 1),
        nn.BatchNorm2d(hidden),
        nn.ReLU(),
        nn.Conv2d(hidden, channels, 1),
        nn.BatchNorm2d(channels),
    ]
    return nn.Sequential(*layers)


class FusionPatches(nn.Module):
    """Patch embedding of [whole, front, middle, back]; clips that fit use the first alone."""

    def __init__(self, embed_dim: int, patch: int) -> None:
        super().__init__()
        self.mel_conv2d = nn.Conv2d(1, embed_dim, (patch, 3 * patch), (patch, 3 * patch))
        hidden = max(1, embed_dim // 4)
        self.local_att = _bottleneck(embed_dim, hidden, pooled=False)
        self.global_att = _bottleneck(embed_dim, hidden, pooled=True)

    def fuse(self, x: Tensor, residual: Tensor) -> Tensor:
        """AFF: a gate from local and global context weighs the two inputs."""
        both = x + residual
        gate = torch.sigmoid(self.local_att(both) + self.global_att(both))
        return 2 * x * gate + 2 * residual * (1 - gate)

    def forward(self, patch: nn.Conv2d, images: Tensor, longer: Tensor) -> Tensor:
        """[clip, 4, spec, spec] and which clips are longer → [clip, embed_dim, grid, grid]."""
        out = patch(images[:, :1])
        chosen = longer.nonzero()[:, 0]
        if len(chosen):
            chunks = images[chosen, 1:]
            clip, chunk, height, width = chunks.shape
            local = self.mel_conv2d(chunks.reshape(clip * chunk, 1, height, width))
            local = local.view(clip, chunk, *local.shape[1:]).permute(0, 2, 3, 1, 4).flatten(3)
            local = F.pad(local, (0, out.shape[-1] - local.shape[-1]))
            fused = self.fuse(out[chosen], local)
            out = out.index_copy(0, chosen, fused)
        return out
