"""What can be taken out of an encoder: heads, outputs of sites, stages, named sets of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from residual_audio.errors import InputError
from residual_audio.types import Head, Site

LEVELS = ("head", "attention", "mlp", "stage")


@dataclass(frozen=True)
class Unit:
    """A set of places that are removed together.

    A head is removed before W_O (the bias of the projection stays); a site is removed as a whole,
    bias included, as the published block ablations do.
    """

    name: str
    heads: frozenset[Head] = frozenset()
    sites: frozenset[Site] = frozenset()

    def __str__(self) -> str:
        return self.name

    def __or__(self, other: Unit) -> Unit:
        return Unit(f"{self.name}+{other.name}", self.heads | other.heads, self.sites | other.sites)


def units_of(sites: Sequence[Site], level: str) -> tuple[Unit, ...]:
    """Every unit of a level (`head`, `attention`, `mlp`, `stage`), in order of computation."""
    if level == "head":
        return tuple(Unit(str(h), heads=frozenset({h})) for site in sites for h in site.heads)
    if level in ("attention", "mlp"):
        return tuple(Unit(str(s), sites=frozenset({s})) for s in sites if s.kind == level)
    if level == "stage":
        stages = sorted({site.stage for site in sites})
        return tuple(
            Unit(f"s{stage}", sites=frozenset(s for s in sites if s.stage == stage))
            for stage in stages
        )
    raise InputError(f"'{level}' is not a level of units: use one of {', '.join(LEVELS)}")


def parse_unit(text: str, sites: Sequence[Site]) -> Unit:
    """Read `s2.b5.h11`, `s2.b5.attention`, `s2.b5.mlp`, `s2`, or `name=a+b+c` for a set of them."""
    name, _, members = text.strip().rpartition("=")
    parts = [_parse_part(part, sites) for part in members.split("+")]
    united = parts[0]
    for part in parts[1:]:
        united = united | part
    return Unit(name or united.name, united.heads, united.sites)


def _parse_part(text: str, sites: Sequence[Site]) -> Unit:
    text = text.strip()
    by_name = {str(site): site for site in sites}
    if text in by_name:
        return Unit(text, sites=frozenset({by_name[text]}))
    stage = re.fullmatch(r"s(\d+)", text)
    if stage:
        found = frozenset(site for site in sites if site.stage == int(stage[1]))
        if found:
            return Unit(text, sites=found)
    if re.fullmatch(r"[sL]\d+[._][bB]\d+[._][hH]\d+", text):
        head = Head.parse(text)
        if any(head in site.heads for site in sites):
            return Unit(str(head), heads=frozenset({head}))
    heads = sum(site.n_heads for site in sites)
    raise InputError(
        f"'{text}' is no unit of this encoder ({heads} heads in {len(sites)} sites): expected a "
        "name like s2.b5.h11, s2.b5.attention, s2.b5.mlp or s2"
    )


def blocks_of(sites: Sequence[Site]) -> dict[tuple[int, int], int]:
    """(stage, block) → index of the block counted over all stages."""
    pairs = dict.fromkeys((site.stage, site.block) for site in sites)
    return {pair: index for index, pair in enumerate(pairs)}


def first_block(unit: Unit, sites: Sequence[Site]) -> int:
    """The earliest block that the unit touches: everything before it can be reused."""
    index = blocks_of(sites)
    touched = [index[h.stage, h.block] for h in unit.heads]
    touched += [index[s.stage, s.block] for s in unit.sites]
    if not touched:
        raise InputError(f"unit '{unit.name}' is empty")
    return min(touched)


def attention_site(head: Head, sites: Iterable[Site]) -> Site:
    """The attention site that a head belongs to."""
    for site in sites:
        if site.kind == "attention" and (site.stage, site.block) == (head.stage, head.block):
            return site
    raise InputError(f"no attention site for head {head}")
