"""What each unit adds to the pooled latent of every clip.

With norm statistics frozen the latent is an exact sum over heads, MLPs, the patch embedding and
constants. A head's part is its pools [clip, slot · d_head] times a fixed operator to the latent, so
it is never stored at full width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from residual_audio.direct.slot_maps import DirectSource, constant_vectors, slot_maps, stages_of
from residual_audio.errors import InputError
from residual_audio.store.tensors import Array
from residual_audio.types import FloatArray, Head, Site, UnitLike, attention_site, parse_unit

EMBEDDING, CONSTANT = "embedding", "constant"


@dataclass(frozen=True)
class Captured:
    """A source of clips captured in memory, as `capture.Recorder` gives them."""

    sites: tuple[Site, ...]
    arrays: Mapping[str, Array]
    operators: Mapping[str, Array]

    def array(self, name: str) -> Array:
        return self.arrays[name]

    def operator(self, name: str) -> Array:
        return self.operators[name]


class Contributions(Mapping[str, FloatArray]):
    """Unit name → [clip, latent], computed when asked for.

    Iterating gives 'embedding', every head, every MLP and 'constant' (all biases), which sum to the
    latent. Any other unit can be asked for too; an attention site or a stage carries its own bias,
    which 'constant' also counts.
    """

    def __init__(
        self,
        source: DirectSource,
        rows: Array | slice | None = None,
        *,
        dtype: npt.DTypeLike | None = None,
        keep: bool = True,
    ) -> None:
        """Of these clips only, in this order; `keep` holds pools in memory once they are read."""
        self._source = source
        self._rows = slice(None) if rows is None else rows
        self._dtype = dtype
        self._keep = keep
        self._pools: dict[Site, FloatArray] = {}
        self._operators: dict[Head, FloatArray] = {}
        self._wide: dict[Head, FloatArray] = {}
        self._factors: dict[Head, tuple[FloatArray, FloatArray]] = {}
        self.sites = source.sites
        # read first: a source without the direct path says so here
        self._weights = {s: self._array(f"direct/weights/s{s}") for s in stages_of(self.sites)}
        self.latent: FloatArray = self._array("embedding/latent")

    @property
    def n_clips(self) -> int:
        return len(self.latent)

    def of_other_clips(self, source: DirectSource) -> Contributions:
        """The same model on other clips: operators that were worked out are shared."""
        found = Contributions(source, dtype=self._dtype, keep=self._keep)
        found._operators, found._factors = self._operators, self._factors
        found.__dict__["_maps"] = self._maps
        return found

    def at(self, rows: Array) -> Contributions:
        """The same of these clips only, in this order."""
        if not isinstance(self._rows, slice):
            raise InputError("these contributions are of some clips already")
        return Contributions(self._source, rows, dtype=self._dtype, keep=self._keep)

    def __iter__(self) -> Iterator[str]:
        yield EMBEDDING
        for site in self.sites:
            yield from map(str, site.heads if site.kind == "attention" else (site,))
        yield CONSTANT

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> FloatArray:
        try:
            return self.of(name)
        except InputError as error:
            raise KeyError(str(error)) from None

    def __repr__(self) -> str:
        clips = f"{self.n_clips} clip{'' if self.n_clips == 1 else 's'}"
        return f"Contributions of {len(self)} parts to the latent of {clips}: .of(unit), .total()"

    def total(self) -> FloatArray:
        """The sum of all, in float64, one unit in memory at a time: the latent."""
        total = np.zeros(self.latent.shape)
        for part in self.values():
            total += part
        return total

    def of(self, unit: UnitLike) -> FloatArray:
        """[clip, latent] of any unit, 'embedding' or 'constant'.

        A head inside a site of the unit counts once; `output` is the latent itself.
        """
        if isinstance(unit, Head):
            return self.head(unit)
        if isinstance(unit, Site):
            return self.site(unit)
        if unit == EMBEDDING:
            return self._array("direct/embedding")
        if unit == CONSTANT:
            return np.sum(list(self.constants().values()), axis=0)
        found = parse_unit(unit, self.sites)
        if found.kind == "output":
            return self.latent
        total = np.zeros_like(self.latent)
        # in order of computation: a set's own order differs from run to run, and so would roundings
        for site in self.sites:
            if site in found.sites:
                total += self.site(site)
        for head in sorted(found.heads):
            if attention_site(head, self.sites) not in found.sites:
                total += self.head(head)
        return total

    def head(self, head: Head | str) -> FloatArray:
        """[clip, latent]: pools times operator, without the bias of the projection."""
        found = self._find(head)
        known = self._wide.get(found)
        if known is not None:
            return known.copy()
        pools = self.pools(found)
        own = pools @ self.operator(found)
        # no more than what it is made of, and far more work: curves ask for it again and again
        if self._keep and own.shape[1] <= pools.shape[1]:
            self._wide[found] = own.copy()
        return own

    def site(self, site: Site | str) -> FloatArray:
        """[clip, latent]: an MLP, or all heads of an attention with its bias."""
        found = site if isinstance(site, Site) else self._site(site)
        if found.kind == "mlp":
            return self._array(f"direct/{found}")
        bias = self._everywhere(found.stage, self._source.operator(f"b_out/{found}"))
        return sum((self.head(head) for head in found.heads), self._cast(bias))

    def constants(self) -> dict[str, FloatArray]:
        """Every bias on its own: `<site>.bias`, `s<stage>.entry`, `final`; each [clip, latent]."""
        return {
            name: np.broadcast_to(vector, self.latent.shape)
            if stage is None
            else self._cast(self._everywhere(stage, vector))
            for name, (stage, vector) in constant_vectors(self._source).items()
        }

    def rest(self, units: Iterable[UnitLike]) -> FloatArray:
        """The latent without these units."""
        return self.latent - sum(self.of(unit) for unit in units)

    def pools(self, head: Head | str) -> FloatArray:
        """[clip, slot · d_head]: raw outputs, weighted and summed over the tokens of each slot."""
        found = self._find(head)
        site = attention_site(found, self.sites)
        pools = self._pools.get(site)
        if pools is None:
            pools = self._array(f"direct/{site}")  # clip head slot·d_head
            if self._keep:
                self._pools[site] = pools
        return pools[:, found.head]

    def operator(self, head: Head | str) -> FloatArray:
        """[slot · d_head, latent], fixed."""
        found = self._find(head)
        if found not in self._operators:
            rows = self._source.operator(f"w_out/{attention_site(found, self.sites)}")[found.head]
            maps = self._maps[found.stage]
            operator = self._cast(np.matmul(rows, maps).reshape(-1, maps.shape[2]))
            if not self._keep:
                return operator
            self._operators[found] = operator
        return self._operators[found]

    def factors(self, head: Head) -> tuple[FloatArray, FloatArray]:
        """Q [latent, r] with orthonormal columns and R [r, r]: the operator is R' Q'."""
        found = self._factors.get(head)
        if found is None:
            q, upper = np.linalg.qr(self.operator(head).T.astype(np.float64))
            found = q, upper
            if self._keep:
                self._factors[head] = found
        return found

    @cached_property
    def _maps(self) -> dict[int, Array]:
        return slot_maps(self._source)

    def _everywhere(self, stage: int, vector: Array) -> Array:
        """What a constant, added at every token of a stage, adds to the latent: [clip, latent]."""
        return self._weights[stage] @ np.einsum("w,swl->sl", vector, self._maps[stage])

    def _array(self, name: str) -> FloatArray:
        return self._cast(self._source.array(name)[self._rows])

    def _cast(self, values: Array) -> FloatArray:
        return np.asarray(values, self._dtype)

    def _site(self, name: str) -> Site:
        for site in self.sites:
            if str(site) == name:
                return site
        raise InputError(f"no site '{name}'; sites are like {self.sites[0]}")

    def _find(self, head: Head | str) -> Head:
        found = Head.parse(head) if isinstance(head, str) else head
        site = attention_site(found, self.sites)
        if found.head >= site.n_heads:
            raise InputError(f"no head '{found}': {site} has {site.n_heads} heads")
        return found
