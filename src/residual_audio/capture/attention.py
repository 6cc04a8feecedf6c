"""Attention maps: how spread and how far each head looks, and a declared sample of window maps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from residual_audio.capture.capture_settings import SamplePlan
from residual_audio.capture.kind import Kind
from residual_audio.models.encoder import Encoder
from residual_audio.types import Site


class Attention(Kind):
    """Entropy and distance of every head; maps of the sampled (clip, window) pairs in float16."""

    points = frozenset({"maps"})

    def __init__(self, encoder: Encoder, plan: SamplePlan) -> None:
        super().__init__()
        self._encoder = encoder
        self._plan = plan
        self._distances: dict[tuple[int, int], Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        assert isinstance(where, Site)
        name = f"attention/{where}"
        # a mean over windows and queries of −Σ p log p, in nats: clip window head query key
        self.found[f"{name}/entropy"] = torch.special.entr(value).sum(-1).mean((1, 3))
        mean_map = value.mean(1)  # distances are linear in p: clip head query key
        for kind, steps in zip(
            ("distance", "distance_cols", "distance_rows"),
            self._distance(where.stage, value),
            strict=True,
        ):
            self.found[f"{name}/{kind}"] = (mean_map * steps).sum((-1, -2))
        rows, kept = [], []
        shape = self._plan.map_shapes.get(str(where), tuple(value.shape[2:]))
        for row, clip in enumerate(self.clips):
            if clip in self._plan.map_clips and shape == value.shape[2:]:
                for window in self._plan.map_windows(where.stage, clip, value.shape[1]):
                    rows.append((row, window))
                    kept.append(value[row, window])
        empty = value.new_zeros(0, *shape)
        self.found[f"{name}/maps"] = (torch.stack(kept) if kept else empty).half()
        self.found[f"{name}/maps_at"] = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2)

    def _distance(self, stage: int, value: Tensor) -> Tensor:
        """[3, query, key]: Euclidean, along time, along frequency; weighted for a mean."""
        n_tokens = value.shape[-1]
        key = (stage, n_tokens)
        if key not in self._distances:
            grid = self._encoder.window_grid(stage, n_tokens).to(value)
            delta = (grid[:, None] - grid[None]).abs()
            placed = (grid >= 0).all(1).to(value)
            # A token with no place neither asks nor counts as far from anything.
            share = placed[:, None] * placed[None] / placed.sum().clamp(min=1)
            steps = torch.stack([delta.square().sum(-1).sqrt(), delta[..., 0], delta[..., 1]])
            self._distances[key] = steps * share
        return self._distances[key]


def map_shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, int, int]]:
    """Head, query and key counts of one window map of each site, from a captured batch."""
    return {
        name.removeprefix("attention/").removesuffix("/maps"): array.shape[1:]  # type: ignore[misc]
        for name, array in arrays.items()
        if name.startswith("attention/") and name.endswith("/maps")
    }
