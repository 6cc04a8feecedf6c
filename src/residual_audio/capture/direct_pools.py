"""The exact decomposition of the pooled latent: what each head, MLP and bias adds to it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from residual_audio.capture.kind import Kind
from residual_audio.models.encoder import Encoder
from residual_audio.types import Site


def compose(steps: tuple[Tensor, ...]) -> list[Tensor]:
    """Per stage, the matrices from each slot to the latent: [slot, width, latent]."""
    maps = [steps[-1]]
    for step in reversed(steps[:-1]):
        # slot k of this stage is slot k % n of its merge, in slot k // n of the next stage
        maps.append(torch.einsum("nwv,kvd->knwd", step, maps[-1]).flatten(0, 1))
    return maps[::-1]


class Direct(Kind):
    """Weighted pools by slot. Weights need the norms of later stages: values wait until the end."""

    points = frozenset({"stream", "raw", "out", "scale"})

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self._path = encoder.direct_path()
        self._maps = [slots.flatten(0, 1) for slots in compose(self._path.steps.steps)]
        self._first = encoder.sites[0]
        self.begin([])

    def twin(self) -> Direct:
        """Shares the fixed matrices, not what a run fills."""
        twin = copy.copy(self)
        twin.begin([])
        return twin

    def begin(self, clips: list[int]) -> None:
        super().begin(clips)
        self._values: dict[tuple[Site, str], Tensor] = {}
        self._scales: dict[int, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if not isinstance(where, Site):
            self._scales[where] = value
        elif (
            point == "raw"
            or (point == "out" and where.kind == "mlp")
            or (point == "stream" and where == self._first)
        ):
            self._values[where, point] = value

    def finish(self) -> dict[str, Tensor]:
        weights = self._path.weights(self._scales)
        found = {f"direct/weights/s{s}": w.sum(1) for s, w in enumerate(weights)}
        for (site, point), value in self._values.items():
            pooled = self._pool(site.stage, value.flatten(2), weights)  # clip slot width
            if point == "raw":
                heads = pooled.unflatten(2, (site.n_heads, site.d_head)).transpose(1, 2)
                found[f"direct/{site}"] = heads.flatten(2)  # clip head slot·d_head
            else:
                name = f"direct/{site}" if point == "out" else "direct/embedding"
                found[name] = pooled.flatten(1) @ self._maps[site.stage]
        self._values, self._scales = {}, {}
        return found

    def _pool(self, stage: int, value: Tensor, weights: list[Tensor]) -> Tensor:
        return (self._path.view(stage, value) * weights[stage][..., None]).sum(1)
