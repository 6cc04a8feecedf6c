"""What pooling over tokens discards: variance over time, over frequency, and the rest."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.capture.capture_settings import SamplePlan
from residual_audio.capture.kind import Kind
from residual_audio.errors import ModelError
from residual_audio.models.encoder import Encoder
from residual_audio.types import Site


def grid_order(places: Tensor) -> tuple[Tensor, int, int]:
    """Token of each cell of the time × frequency grid, and the grid's size."""
    placed = (places >= 0).all(1).nonzero()[:, 0]
    time, frequency = places[placed].unbind(1)
    n_times, n_frequencies = int(time.max()) + 1, int(frequency.max()) + 1
    cells = time * n_frequencies + frequency
    if len(cells) != n_times * n_frequencies or len(cells.unique()) != len(cells):
        raise ModelError(f"{len(cells)} tokens do not fill a {n_times} × {n_frequencies} grid once")
    return placed[cells.argsort()], n_times, n_frequencies


def variance_split(grid: Tensor) -> Tensor:
    """[clip, time, frequency, head, d_head] → [clip, head, 3]: over time, over frequency, the rest.

    Mean over tokens of ‖·‖² of  m_t − m,  m_f − m  and  h − m_t − m_f + m; the three sum to the
    variance inside the clip, mean ‖h − m‖².
    """
    centred = grid - grid.mean((1, 2), keepdim=True)
    over_time = centred.mean(2, keepdim=True)
    over_frequency = centred.mean(1, keepdim=True)
    rest = centred - over_time - over_frequency
    parts = [part.square().sum(-1).mean((1, 2)) for part in (over_time, over_frequency, rest)]
    return torch.stack(parts, dim=-1)


class Tokens(Kind):
    """The split for every clip, and the sampled clips' head outputs token by token in float16."""

    points = frozenset({"raw"})

    def __init__(self, encoder: Encoder, plan: SamplePlan) -> None:
        super().__init__()
        self._encoder = encoder
        self._plan = plan
        self._any_length = encoder.any_length
        self._orders: dict[tuple[int, int], tuple[Tensor, int, int]] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        assert isinstance(where, Site)
        n_tokens = value.shape[1]
        key = (where.stage, n_tokens)
        if key not in self._orders:
            order, *size = grid_order(self._encoder.time_frequency(where.stage, n_tokens))
            self._orders[key] = (order.to(value.device), *size)  # type: ignore[assignment]
        order, n_times, n_frequencies = self._orders[key]
        grid = value.index_select(1, order).unflatten(1, (n_times, n_frequencies))
        name = f"tokens/{where}"
        self.found[f"{name}/split"] = variance_split(grid)
        rows = [row for row, clip in enumerate(self.clips) if clip in self._plan.token_clips]
        at = torch.tensor(rows, dtype=torch.int64)
        self.found[f"{name}/sample"] = self._coarse(grid[at.to(grid.device)]).half()
        self.found[f"{name}/sample_at"] = at

    def _coarse(self, grid: Tensor) -> Tensor:
        """[sample, head, time, frequency, d_head], averaged down to the declared size."""
        n_times, n_frequencies, head, d_head = grid.shape[1:]
        time, frequency = self._plan.settings.token_grid
        grid = grid.permute(0, 3, 4, 1, 2)  # sample head d_head time frequency
        # clips of any length: one number of time steps for all, so that they share an array
        size = (time if self._any_length else min(n_times, time), min(n_frequencies, frequency))
        if size != (n_times, n_frequencies):
            grid = F.adaptive_avg_pool2d(grid.flatten(1, 2), size).unflatten(1, (head, d_head))
        return grid.permute(0, 1, 3, 4, 2)
