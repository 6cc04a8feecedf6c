"""A tap that keeps exactly what was asked for, token by token."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from residual_audio.capture.direct_pools import Direct
from residual_audio.capture.keep import Keep
from residual_audio.models.encoder import Encoded
from residual_audio.types import FloatArray, Site


class Keeper:
    """Fills `values` while an encoder runs: name → [clip, …]."""

    def __init__(self, keep: Keep, direct: Direct | None = None) -> None:
        self._keep = keep
        self._direct = direct
        self.points = keep.points | (direct.points if direct else frozenset())
        self.values: dict[str, FloatArray] = {}
        self._heads: dict[Site, list[int]] = defaultdict(list)
        for site, head in sorted(keep.heads, key=lambda place: place[1]):
            self._heads[site].append(head)

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if self._direct is not None and point in self._direct.points:
            self._direct(point, where, value)
        keep = self._keep
        if isinstance(where, int):
            if where in (keep.end if point == "end" else keep.scale):
                self._put(f"s{where}.{point}", value)
        elif point == "raw":
            for head in self._heads.get(where, ()):
                self._put(str(where.heads[head]), value[:, :, head])
        elif point == "out":
            if where in keep.out:
                self._put(str(where), value)
        elif where in (keep.stream if point == "stream" else keep.maps):
            self._put(f"s{where.stage}.b{where.block}.{point}", value)

    def finish(self, encoded: Encoded) -> dict[str, FloatArray]:
        """Everything of one pass; pools of the direct path under names that begin with `direct/`"""
        if self._keep.tokens:
            self._put("tokens", encoded.tokens)
        if self._direct is not None:
            for name, value in self._direct.finish().items():
                self._put(name, value)
        found, self.values = self.values, {}
        return found

    def _put(self, name: str, value: Tensor) -> None:
        # a copy: what is asked for must not hold on to all that it was cut from
        whole = value.detach().to("cpu", copy=True)
        if whole.dtype not in (torch.float32, torch.float64):
            whole = whole.float()
        self.values[name] = np.ascontiguousarray(whole.numpy())
