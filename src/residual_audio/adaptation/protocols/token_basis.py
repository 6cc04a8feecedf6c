"""Bases from every token: of all blocks of a stage together, or of each head; in constant memory.

Moments of batches merge exactly, so no rank is capped and nothing is kept but mean and scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from residual_audio.metrics.moments import Moments
from residual_audio.metrics.spectra import spectrum_of_moments
from residual_audio.passes.kept import Passes
from residual_audio.reweight.axes import attention_of
from residual_audio.types import Site, Spectrum, Unit, attention_site


class _Tokens:
    """A tap that adds up moments of attention: by head before W_O, or by name after it."""

    def __init__(self, names: dict[Site, str], point: str) -> None:
        self.points = frozenset({point})
        self.names = names
        self.moments: dict[str, Moments] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if not isinstance(where, Site) or where not in self.names:
            return
        x = value.detach().to("cpu", torch.float64).flatten(0, 1)  # token …
        found = Moments.of((x.transpose(0, 1) if point == "raw" else x).numpy())
        name = self.names[where]
        known = self.moments.get(name)
        self.moments[name] = found if known is None else known.merge(found)


@torch.no_grad()
def token_spectra(passes: Passes, rows: np.ndarray, units: Sequence[Unit]) -> dict[str, Spectrum]:
    """Centred PCA of each head or stage over all tokens of these clips, by name of the unit."""
    sites = passes.model.encoder.sites
    heads = {unit.name: head for unit in units if unit.kind == "head" for head in unit.heads}
    if heads:
        where = {name: attention_site(head, sites) for name, head in heads.items()}
        tap = _Tokens({site: str(site) for site in where.values()}, "raw")
    else:
        names = {site: unit.name for unit in units for site in attention_of(unit, sites)}
        tap = _Tokens(names, "out")
    for _, features in passes.batches(rows.tolist()):
        passes.model.encoder.encode(features, tap=tap)
    if not heads:
        return {name: spectrum_of_moments(found) for name, found in tap.moments.items()}
    out = {}
    for name, head in heads.items():
        found = tap.moments[str(where[name])]
        own = Moments(found.n, found.mean[head.head], found.scatter[head.head])
        out[name] = spectrum_of_moments(own)
    return out
