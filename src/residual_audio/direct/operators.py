"""The direct path, read back: what each unit adds to the pooled latent of every clip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np

from residual_audio.errors import StoreError
from residual_audio.store.tensors import Array
from residual_audio.types import Head, Site

EMBEDDING, CONSTANT = "embedding", "constant"


class DirectReader:
    """Pools and fixed matrices → contributions, one unit at a time."""

    def __init__(
        self,
        sites: tuple[Site, ...],
        array: Callable[[str], Array],
        operator: Callable[[str], Array],
    ) -> None:
        self._sites = sites
        self._array = array
        self._operator = operator
        self._stages = sorted({site.stage for site in sites})

    @cached_property
    def _maps(self) -> dict[int, Array]:
        """Per stage [slot, width, latent]: a product of one step a stage."""
        maps: dict[int, Array] = {}
        after: Array | None = None
        for stage in reversed(self._stages):
            step = self._operator(f"direct/step/s{stage}")
            if after is not None:
                # slot k of this stage is slot k % n of its merge, in slot k // n of the next stage
                step = np.einsum("nwv,kvd->knwd", step, after, optimize=True)
                step = step.reshape(-1, *step.shape[2:])
            maps[stage] = after = step
        return maps

    def maps(self, stage: int) -> Array:
        return self._maps[stage]

    def operator(self, site: Site, head: int) -> Array:
        """[slots · d_head, latent]."""
        rows = self._operator(f"w_out/{site}")[head]
        return np.matmul(rows, self._maps[site.stage]).reshape(-1, self._maps[site.stage].shape[2])

    def pools(self, site: Site) -> Array:
        return self._array(f"direct/{site}")

    def constants(self) -> dict[str, Array]:
        """Every bias on its own: W_O biases, entry constants of the stages, the final norm's β."""
        found: dict[str, Array] = {}
        for site in self._sites:
            if site.kind == "attention":
                found[f"{site}.bias"] = self._everywhere(
                    site.stage, self._operator(f"b_out/{site}")
                )
        for stage in self._stages[1:]:
            found[f"s{stage}.entry"] = self._everywhere(
                stage, self._operator(f"direct/entry/s{stage}")
            )
        n_clips = len(self._array(f"direct/weights/s{self._stages[0]}"))
        final = self._operator("direct/final")
        found["final"] = np.broadcast_to(final, (n_clips, len(final)))
        return found

    def _everywhere(self, stage: int, vector: Array) -> Array:
        """What a constant, added at every token of a stage, adds to the latent: [clip, latent]."""
        sums = self._array(f"direct/weights/s{stage}")  # clip slot
        return sums @ np.einsum("w,swl->sl", vector, self._maps[stage])

    def contribution(self, unit: Head | Site | str, site: Site | None) -> Array:
        if isinstance(unit, Head):
            assert site is not None
            return self.pools(site)[:, unit.head] @ self.operator(site, unit.head)
        if isinstance(unit, Site):
            if unit.kind == "mlp":
                return self._array(f"direct/{unit}")
            return np.sum([self.contribution(head, unit) for head in unit.heads], axis=0)
        if unit == EMBEDDING:
            return self._array("direct/embedding")
        if unit == CONSTANT:
            return np.sum(list(self.constants().values()), axis=0)
        raise StoreError(f"'{unit}' is no unit: name a head, an MLP, 'embedding' or 'constant'")


class Contributions(Mapping[str, Array]):
    """Unit name → [clip, latent], computed when asked for; the values sum to the latent."""

    def __init__(self, sites: tuple[Site, ...], compute: Callable[[str], Array]) -> None:
        units = [
            str(unit)
            for site in sites
            for unit in (site.heads if site.kind == "attention" else [site])
        ]
        self._units = dict.fromkeys([EMBEDDING, *units, CONSTANT])
        self._compute = compute

    def __getitem__(self, unit: str) -> Array:
        if str(unit) not in self._units:
            raise KeyError(str(unit))
        return self._compute(str(unit))

    def __iter__(self) -> Iterator[str]:
        return iter(self._units)

    def __len__(self) -> int:
        return len(self._units)

    def total(self) -> Array:
        """The sum of all, one unit in memory at a time."""
        total: Array | None = None
        for unit in self:
            part = self[unit]
            total = part.astype(np.float64) if total is None else total + part
        assert total is not None
        return total
