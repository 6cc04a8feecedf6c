"""What each unit adds to the pooled latent, read from the `direct` capture of a store.

With norm statistics frozen the latent is an exact sum over heads, MLPs, the patch embedding and
constants. A head's part is its pools [clip, slot · d_head] times a fixed operator to the latent, so
it is never stored at full width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from residual_audio.direct.operators import DirectReader
from residual_audio.types import FloatArray, Head, Site, Unit, attention_site


class Constants(Protocol):
    """Biases by name (`s2.b5.attention.bias` …), each [clip, D]."""

    def constants(self) -> dict[str, Any]: ...


class DirectSource(Protocol):
    """The part of a store that the direct path needs; one row a clip that is ok."""

    @property
    def sites(self) -> tuple[Site, ...]: ...

    @property
    def direct(self) -> Constants: ...

    def latent(self) -> Any:
        """[clip, D]"""

    def direct_pools(self, site: Site) -> Any:
        """[clip, head, slot · d_head]"""

    def direct_operator(self, head: Head) -> Any:
        """[slot · d_head, D]"""

    def direct_mlp(self, site: Site) -> Any:
        """[clip, D]"""


class Captured:
    """A `DirectSource` of clips captured in memory, as `capture.Recorder` gives them."""

    def __init__(
        self, sites: tuple[Site, ...], arrays: Mapping[str, Any], operators: Mapping[str, Any]
    ) -> None:
        self.sites = sites
        self._arrays = arrays
        self.direct = DirectReader(sites, arrays.__getitem__, operators.__getitem__)

    def latent(self) -> Any:
        return self._arrays["embedding/latent"]

    def direct_pools(self, site: Site) -> Any:
        return self.direct.pools(site)

    def direct_operator(self, head: Head) -> Any:
        return self.direct.operator(attention_site(head, self.sites), head.head)

    def direct_mlp(self, site: Site) -> Any:
        return self.direct.contribution(site, None)


class Contributions:
    """Contributions by unit, each computed when asked for; pools are read once and kept."""

    def __init__(self, source: DirectSource, rows: Any = slice(None)) -> None:
        self._source = source
        self._rows = rows
        self._pools: dict[Site, FloatArray] = {}
        self._operators: dict[Head, FloatArray] = {}
        self._constants: dict[str, Any] | None = None
        self.latent: FloatArray = np.asarray(source.latent()[rows], np.float32)

    @property
    def sites(self) -> tuple[Site, ...]:
        return self._source.sites

    def __len__(self) -> int:
        return len(self.latent)

    def pools(self, head: Head) -> FloatArray:
        """[clip, slot · d_head]"""
        site = attention_site(head, self.sites)
        if site not in self._pools:
            self._pools[site] = np.asarray(self._source.direct_pools(site)[self._rows], np.float32)
        return self._pools[site][:, head.head]

    def operator(self, head: Head) -> FloatArray:
        """[slot · d_head, D]"""
        if head not in self._operators:
            self._operators[head] = np.asarray(self._source.direct_operator(head), np.float32)
        return self._operators[head]

    def head(self, head: Head) -> FloatArray:
        """[clip, D]"""
        return self.pools(head) @ self.operator(head)

    def site(self, site: Site) -> FloatArray:
        """[clip, D]: an MLP, or all heads of an attention with its bias."""
        if site.kind == "mlp":
            return np.asarray(self._source.direct_mlp(site)[self._rows], np.float32)
        if self._constants is None:
            self._constants = self._source.direct.constants()
        bias = np.asarray(self._constants[f"{site}.bias"][self._rows], np.float32)
        return sum((self.head(h) for h in site.heads), bias)

    def of(self, unit: Unit) -> FloatArray:
        """[clip, D] of any unit; a head inside a site of the unit counts once."""
        total = np.zeros_like(self.latent)
        for site in unit.sites:
            total += self.site(site)
        for head in unit.heads:
            if attention_site(head, self.sites) not in unit.sites:
                total += self.head(head)
        return total

    def rest(self, units: Iterable[Unit]) -> FloatArray:
        """The latent without these units."""
        return self.latent - sum(self.of(unit) for unit in units)
