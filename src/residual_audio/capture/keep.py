"""What to keep of a run: units and points of an encoder, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from residual_audio.errors import InputError
from residual_audio.types import Head, Site, Unit, UnitLike, attention_site, parse_units

SITE_POINTS = {
    "stream": "the residual stream entering each block",
    "maps": "attention probabilities",
}
STAGE_POINTS = {
    "end": "the stream at the end of each stage, before merging",
    "scale": "1/σ of each token at the norm that ends a stage",
}
OTHER_POINTS = {
    "tokens": "the final tokens, after the last norm",
    "contributions": "what every unit adds to the latent",
}


@dataclass(frozen=True)
class Keep:
    """Places of an encoder that are kept; everything else is not."""

    heads: frozenset[tuple[Site, int]] = frozenset()
    """Attention site and number of the head: its output before W_O."""
    out: frozenset[Site] = frozenset()
    """What a site adds to the stream."""
    stream: frozenset[Site] = frozenset()
    maps: frozenset[Site] = frozenset()
    end: frozenset[int] = frozenset()
    scale: frozenset[int] = frozenset()
    tokens: bool = False
    contributions: bool = False
    output: bool = False
    """The latent is at hand anyway: whether it is among the units that are patched."""

    @property
    def points(self) -> frozenset[str]:
        """Points of the encoder that have to be tapped."""
        wanted = {
            "raw": self.heads,
            "out": self.out,
            "stream": self.stream,
            "maps": self.maps,
            "end": self.end,
            "scale": self.scale,
        }
        return frozenset(point for point, places in wanted.items() if places)


def parse_keep(given: UnitLike | Iterable[UnitLike], sites: Sequence[Site]) -> Keep:
    """Units (`s2.b5.h11`, `s3.*.attention`, `head`, `s2`), points (`maps`, `stream`, `end`,
    `scale`, `tokens`, `contributions`) and points of places (`s2.b5.maps`, `s3.*.stream`)."""
    single = isinstance(given, Unit | Head | Site | str)
    items: Iterable[UnitLike] = (given,) if single else given  # type: ignore[assignment]
    heads: set[tuple[Site, int]] = set()
    out: set[Site] = set()
    streams: dict[str, set[Site]] = {point: set() for point in SITE_POINTS}
    ends: dict[str, set[int]] = {point: set() for point in STAGE_POINTS}
    others: set[str] = set()
    for item in items:
        place, _, point = str(item).strip().rpartition(".")
        if point in SITE_POINTS:
            streams[point] |= _blocks(place, point, sites)
        elif point in STAGE_POINTS:
            ends[point] |= _stages(place, point, sites)
        elif point in OTHER_POINTS and not place:
            others.add(point)
        else:
            for unit in _units(item, sites):
                out |= unit.sites
                heads |= {(attention_site(head, sites), head.head) for head in unit.heads}
                others |= {"output"} if unit.kind == "output" else set()
    return Keep(
        frozenset(heads),
        frozenset(out),
        frozenset(streams["stream"]),
        frozenset(streams["maps"]),
        frozenset(ends["end"]),
        frozenset(ends["scale"]),
        "tokens" in others,
        "contributions" in others,
        "output" in others,
    )


def _units(item: UnitLike, sites: Sequence[Site]) -> tuple[Unit, ...]:
    try:
        return parse_units(item, sites)
    except InputError as error:
        points = ", ".join([*SITE_POINTS, *STAGE_POINTS, *OTHER_POINTS])
        raise InputError(f"{error}; points: {points}") from None


def _blocks(place: str, point: str, sites: Sequence[Site]) -> set[Site]:
    """Attention sites, which stand for their blocks."""
    attention = [site for site in sites if site.kind == "attention"]
    pattern = place.removesuffix(".attention").split(".") if place else ["*", "*"]
    found = {
        site
        for site in attention
        if len(pattern) == 2
        and fnmatchcase(f"s{site.stage}", pattern[0])
        and fnmatchcase(f"b{site.block}", pattern[1])
    }
    if not found:
        raise InputError(f"'{place}.{point}' fits no block: expected a name like s2.b5.{point}")
    return found


def _stages(place: str, point: str, sites: Sequence[Site]) -> set[int]:
    stages = {site.stage for site in sites}
    found = {stage for stage in stages if fnmatchcase(f"s{stage}", place or "*")}
    if not found:
        raise InputError(f"'{place}.{point}' fits no stage: expected a name like s2.{point}")
    return found
