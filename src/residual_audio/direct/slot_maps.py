"""The fixed matrices of the direct path: from a place in the encoder to the pooled latent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from residual_audio.store.tensors import Array
from residual_audio.types import Site


class DirectSource(Protocol):
    """What the direct path is read from: a store, or clips captured in memory."""

    @property
    def sites(self) -> tuple[Site, ...]: ...

    def array(self, name: str) -> Array:
        """`embedding/latent`, `direct/<site>`, `direct/embedding`, `direct/weights/s<stage>`."""

    def operator(self, name: str) -> Array:
        """`w_out/<site>`, `b_out/<site>`, `direct/step/…`, `direct/entry/…`, `direct/final`."""


def stages_of(sites: Sequence[Site]) -> list[int]:
    return sorted({site.stage for site in sites})


def slot_maps(source: DirectSource) -> dict[int, Array]:
    """Stage → [slot, width, latent], a product of one step a stage."""
    maps: dict[int, Array] = {}
    after: Array | None = None
    for stage in reversed(stages_of(source.sites)):
        step = source.operator(f"direct/step/s{stage}")
        if after is not None:
            # slot k of this stage is slot k % n of its merge, in slot k // n of the next stage
            step = np.einsum("nwv,kvd->knwd", step, after, optimize=True)
            step = step.reshape(-1, *step.shape[2:])
        maps[stage] = after = step
    return maps


def constant_vectors(source: DirectSource) -> dict[str, tuple[int | None, Array]]:
    """Name → stage and vector of every bias: of W_O, of the entry into each stage, of the final
    norm (stage None, already in the latent)."""
    found: dict[str, tuple[int | None, Array]] = {
        f"{site}.bias": (site.stage, source.operator(f"b_out/{site}"))
        for site in source.sites
        if site.kind == "attention"
    }
    for stage in stages_of(source.sites)[1:]:
        found[f"s{stage}.entry"] = (stage, source.operator(f"direct/entry/s{stage}"))
    found["final"] = (None, source.operator("direct/final"))
    return found
