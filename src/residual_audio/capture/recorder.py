"""One tap for everything that is captured: one pass over the encoder, every kind served."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from residual_audio.capture.attention import Attention, map_shapes
from residual_audio.capture.capture_settings import CaptureSettings, SamplePlan
from residual_audio.capture.direct_pools import Direct
from residual_audio.capture.kind import Kind
from residual_audio.capture.pooled import Blocks, Heads, Stages
from residual_audio.capture.token_moments import TokenMoments
from residual_audio.capture.tokens import Tokens
from residual_audio.engine.cores import stream_clips
from residual_audio.models.encoder import Encoded, Encoder, Features
from residual_audio.types import Site

Arrays = dict[str, npt.NDArray[np.generic]]

_BUILD: dict[str, Callable[[Encoder, SamplePlan], Kind]] = {
    "heads": lambda encoder, plan: Heads(),
    "blocks": lambda encoder, plan: Blocks(),
    "stages": lambda encoder, plan: Stages(),
    "direct": lambda encoder, plan: Direct(encoder),
    "moments": lambda encoder, plan: TokenMoments(),
    "attention": Attention,
    "tokens": Tokens,
}


class Recorder:
    """Hands each tapped value to the kinds that asked for it."""

    def __init__(self, encoder: Encoder, plan: SamplePlan) -> None:
        self._encoder = encoder
        self._kinds = [
            _BUILD[name](encoder, plan) for name in plan.settings.kinds if name != "embedding"
        ]
        self.points = frozenset({"heard"}).union(*(kind.points for kind in self._kinds))

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        for kind in self._kinds:
            if point == "heard":
                kind.heard = value
            elif point in kind.points:
                kind(point, where, value)

    @torch.inference_mode()
    def run(
        self,
        features: Features,
        joint: Callable[[Encoded], Tensor] | None = None,
        clips: list[int] | None = None,
    ) -> Arrays:
        """Encode one batch: arrays by name, one row a clip.

        `joint` maps the encoder's output to the joint space; `clips` are the places of the batch
        in the run, which decide what is sampled. Names that do not hold one row a clip:
        `moments/…` (one value for the batch), `…/maps` and `…/sample` (rows in `…_at`).
        """
        n_clips = len(features[0] if isinstance(features, tuple) else features)
        for kind in self._kinds:
            kind.begin(list(range(n_clips)) if clips is None else clips)
        encoded = self._encoder.encode(features, tap=self if self._kinds else None)
        found = {"embedding/latent": encoded.latent}
        if joint is not None:
            found["embedding/joint"] = joint(encoded)
        for kind in self._kinds:
            found |= kind.finish()
        return {name: value.contiguous().cpu().numpy() for name, value in found.items()}

    def stream(
        self,
        batches: Iterable[tuple[Tensor, Sequence[int]]],
        front_end: Callable[[Tensor], Features],
        joint: Callable[[Encoded], Tensor] | None = None,
    ) -> Generator[tuple[Sequence[int], Arrays], None, None]:
        """As `run`, for batches of waves and the places of their clips: places and arrays of a few
        clips at a time, in order. Each core of a CPU takes its own clips all the way; the same bits
        on any number of cores."""

        def some(waves: Tensor, places: Sequence[int]) -> tuple[Sequence[int], Arrays]:
            return places, self._twin().run(front_end(waves), joint, list(places))

        with torch.inference_mode():
            return stream_clips(some, batches, exact=True)

    def _twin(self) -> Recorder:
        """Shares what was worked out once, not what a run fills."""
        twin = copy.copy(self)
        twin._kinds = [copy.copy(kind) for kind in self._kinds]
        return twin


def probe_maps(encoder: Encoder, features: Features) -> dict[str, tuple[int, int, int]]:
    """Shapes of each site's window maps, learnt from one batch."""
    plan = SamplePlan(1, CaptureSettings.of("attention", n_maps=1))
    return map_shapes(Recorder(encoder, plan).run(features))


def fit_maps(
    settings: CaptureSettings, shapes: Mapping[str, tuple[int, int, int]]
) -> CaptureSettings:
    """Fewer window maps where `n_maps` of them would be larger than `map_bytes` (large windows)."""
    one = sum(2 * math.prod(shape) for shape in shapes.values())  # float16
    fitting = max(1, settings.map_bytes // max(1, one))
    return replace(settings, n_maps=min(settings.n_maps, fitting))
