"""Edits by the names of units, made into functions at the sites of an encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.edited import SiteChange
from residual_audio.passes.edits import (
    Applied,
    Function,
    Mean,
    Patch,
    Scale,
    UnitEdit,
    UnitEdits,
    Zero,
)
from residual_audio.types import Site, UnitLike, attention_site, parse_units


def site_change(edits: UnitEdits | Patch, sites: Sequence[Site]) -> SiteChange:
    """Edits by name as functions at sites; names that the encoder does not have are refused."""
    if isinstance(edits, Patch):
        edits = _of_everything_kept(edits)
    elif not isinstance(edits, Mapping):
        raise InputError(
            "an edit is a mapping from names of units to edits ({'s2.b5.h11': ra.zero()}), "
            f"ra.patch(cache) or gains, not {type(edits).__name__}"
        )
    heads: dict[Site, dict[int, Function]] = {}
    out: dict[tuple[Site, str], Function] = {}
    output: Function | None = None
    digests: dict[str, str] = {}
    for name, edit in edits.items():
        value = edit if isinstance(edit, Zero | Scale | Mean | Patch) else _function(name, edit)
        for part, site, head in _parts(name, sites):
            if part in digests:
                raise InputError(f"{part} is edited twice: the second time by '{name}'")
            digests[part] = value.digest(part)
            if site is None:
                output = value.of(part)
            elif head is None:
                out[site, "out"] = value.of(part)
            else:
                heads.setdefault(site, {})[head] = value.of(part)
    for site, functions in heads.items():
        out[site, "raw"] = _at_heads(functions)
    told = all(digests.values())
    whole = hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest() if told else ""
    return SiteChange(_label(edits, len(digests), whole), whole, out, output)


def _function(name: str, edit: object) -> Applied:
    if not callable(edit):
        raise InputError(
            f"the edit of '{name}' is a {type(edit).__name__}: give ra.zero(), ra.mean(…), "
            "ra.scale(…), ra.patch(…) or a function of the tensor"
        )
    return Applied(edit)


def _of_everything_kept(patch: Patch) -> UnitEdits:
    if not patch.source.units:
        raise InputError("nothing that can be patched was kept: run with keep=['s2.b5.h11'] …")
    return dict.fromkeys(patch.source.units, patch)


def _parts(name: UnitLike, sites: Sequence[Site]) -> list[tuple[str, Site | None, int | None]]:
    """Single heads, sites and the output that a name stands for: (name, site, head)."""
    found: dict[str, tuple[Site | None, int | None]] = {}
    for unit in parse_units(name, sites):
        if unit.kind == "output":
            found["output"] = (None, None)
        for site in sites:
            if site in unit.sites:
                found[str(site)] = (site, None)
        for head in sorted(unit.heads):
            site = attention_site(head, sites)
            if site not in unit.sites:
                found[str(head)] = (site, head.head)
    return [(part, site, head) for part, (site, head) in found.items()]


def _at_heads(functions: Mapping[int, Function]) -> Function:
    """One function of all heads of a site [clip, token, head, d_head] from one a head."""

    def put(x: Tensor) -> Tensor:
        parts = list(x.unbind(2))
        for head, function in functions.items():
            parts[head] = function(parts[head])
        return torch.stack(parts, 2)

    return put


def _label(edits: UnitEdits, n: int, digest: str) -> str:
    if len(edits) <= 2:
        return ", ".join(f"{_verb(edit)}({name})" for name, edit in edits.items())
    return f"{n} edits" + (f" {digest[:8]}" if digest else "")


def _verb(edit: UnitEdit) -> str:
    if isinstance(edit, Scale):
        return f"{edit.factor:g}×"
    return type(edit).__name__.lower() if isinstance(edit, Zero | Mean | Patch) else "function"
