"""What a run of a model kept, by the names of units and points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import torch

from residual_audio.capture.keep import SITE_POINTS, STAGE_POINTS
from residual_audio.capture.tokens import grid_order
from residual_audio.drawing import Pictured
from residual_audio.errors import InputError, ModelError
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, Head

if TYPE_CHECKING:
    from residual_audio.direct.contributions import Contributions

Values = FloatArray | tuple[FloatArray, ...]
"""[clip, …]; one array a clip where clips have different numbers of tokens."""
Grid = FloatArray | str
"""[token, 2] time and frequency of each token, or why there is none."""
POINTS = (*SITE_POINTS, *STAGE_POINTS)
Point = Literal["stream", "maps", "end", "scale"]


@dataclass(frozen=True, repr=False)
class Cache(Pictured):
    """Clips that a model has heard, and what was asked to be kept of them.

    >>> import numpy as np, residual_audio as ra
    >>> model = ra.load_model("nano")
    >>> noise = np.random.default_rng(0).normal(size=(2, 32000)) / 10
    >>> cache = model.run(list(noise), keep=["s2.b5.h11", "s3.*.attention"], sample_rate=32000)
    >>> cache["s2.b5.h11"].shape, cache.time_frequency("s2.b5.h11").shape
    ((2, 64, 12), (2, 16, 4, 12))
    """

    clips: tuple[str, ...]
    """Names of files, or `waveform 0` …"""
    latent: FloatArray
    """[clip, latent]: the pooled output of the encoder."""
    embedding: FloatArray
    """[clip, d]: unit vectors in the joint space."""
    values: Mapping[str, Values] = field(default_factory=dict)
    """Everything that was kept, by name."""
    units: tuple[str, ...] = ()
    """Heads, sites and `output` among it: what can be patched elsewhere."""
    grids: Mapping[str, Grid] = field(default_factory=dict)
    """`s2/64` (a stage and its number of tokens) or `tokens/16` → where each token lies."""
    model: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Clips that could not be heard, and why."""
    decompose: Callable[[], Contributions] | None = None
    rows: tuple[int, ...] | None = None
    """The clips of the run that are left here; None for all."""

    @property
    def n_clips(self) -> int:
        return len(self.clips)

    def __len__(self) -> int:
        return len(self.clips)

    @overload
    def __getitem__(self, name: Point) -> Mapping[str, FloatArray]: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, name: str) -> FloatArray: ...
    def __getitem__(self, name: str) -> FloatArray | Mapping[str, FloatArray]:
        """[clip, token, d] of a head or site by name; of a point (`maps`), every place of it."""
        if name in POINTS:
            found = [key for key in self.values if key.endswith(f".{name}")]
            if not found:
                raise InputError(f"no {name} were kept; kept: {self._names()}")
            return {key.removesuffix(f".{name}"): self._array(key) for key in found}
        return self._array(_canonical(name))

    def __contains__(self, name: str) -> bool:
        return _canonical(name) in self.values or (
            name in POINTS and any(key.endswith(f".{name}") for key in self.values)
        )

    def value(self, unit: str) -> FloatArray:
        """[clip, token, d] of a unit; `output` is the latent."""
        return self.latent if unit == "output" else self._array(unit)

    def maps(self, site: str) -> FloatArray:
        """[clip, window, head, query, key]: attention of a block (`s2.b5` or `s2.b5.attention`)."""
        return self._array(f"{site.removesuffix('.attention')}.maps")

    def time_frequency(self, name: str) -> FloatArray:
        """[clip, time, frequency, …] of a unit, a stream (`s2.b5.stream`, `s2.end`) or `tokens`.

        Windows, folds and special tokens are undone: time goes forward, frequency goes up.
        """
        name = _canonical(name)
        value = self._array(name)
        stage = name.split(".")[0]
        place = self.grids.get(f"{stage}/{value.shape[1]}")
        if name.endswith((".maps", ".scale")) or place is None:
            raise InputError(f"'{name}' has no axis of tokens that time and frequency are made of")
        if isinstance(place, str):
            raise ModelError(place)
        order, n_times, n_frequencies = grid_order(torch.from_numpy(place))
        grid = value[:, order.numpy()]
        return grid.reshape(len(grid), n_times, n_frequencies, *grid.shape[2:])

    def contributions(self) -> Contributions:
        """What every head, every MLP, the patches and the biases add to the latent: exact.

        Made in the run where `keep` named "contributions", else by a second pass over the same
        clips, the first time that it is asked for. `.total()` is the latent.
        """
        if self.decompose is None:
            raise InputError("this cache was made without its model: run with 'contributions'")
        whole = self.decompose()
        return whole if self.rows is None else whole.at(np.array(self.rows))

    def clip(self, place: int) -> Cache:
        """One of the clips as a cache of its own, to be patched into others."""
        if not -len(self) <= place < len(self):
            raise InputError(f"there is no clip {place}: there are {len(self)}")
        place %= len(self)
        here = slice(place, place + 1)
        one = {
            name: value[place][None] if isinstance(value, tuple) else value[here]
            for name, value in self.values.items()
        }
        row = place if self.rows is None else self.rows[place]
        return replace(
            self,
            clips=self.clips[here],
            latent=self.latent[here],
            embedding=self.embedding[here],
            values=one,
            rows=(row,),
            skipped={},
        )

    @property
    def n_bytes(self) -> int:
        """Of everything kept."""
        return sum(_bytes(value) for value in self.values.values())

    def table(self) -> Table:
        """What was kept, one row a name."""
        rows = [
            {"kept": name, "shape": _shape(value), "kB": _bytes(value) / 1000}
            for name, value in self.values.items()
        ]
        notes = tuple(f"skipped {name}: {why}" for name, why in self.skipped.items())
        return from_rows("cache", rows, self._title(), notes)

    def __repr__(self) -> str:
        return repr(self.table()) if self.values else f"cache: {self._title()}, nothing kept"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def _title(self) -> str:
        clips = f"{len(self)} clip" + ("" if len(self) == 1 else "s")
        return f"{clips} through {self.model}, {self.n_bytes / 1e6:.1f} MB"

    def _array(self, name: str) -> FloatArray:
        try:
            value = self.values[name]
        except KeyError:
            raise InputError(f"'{name}' was not kept; kept: {self._names()}") from None
        if isinstance(value, tuple):
            raise InputError(
                f"'{name}' has {_shape(value)}: clips of different lengths. Take one at a time "
                f"(cache.clip(0)['{name}']), or run with long='center'"
            )
        return value

    def _names(self) -> str:
        names = list(self.values)
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        return (", ".join(names[:8]) or "nothing") + more


def _canonical(name: str) -> str:
    """`L2_B5_H11` of published tables → `s2.b5.h11`."""
    try:
        return str(Head.parse(name))
    except InputError:
        return name


def _shape(value: Values) -> str:
    if isinstance(value, tuple):
        sizes = sorted({len(part) for part in value})
        return f"{len(value)} × {sizes[0]}–{sizes[-1]} tokens"
    return " × ".join(str(n) for n in value.shape)


def _bytes(value: Values) -> int:
    return sum(part.nbytes for part in value) if isinstance(value, tuple) else value.nbytes
