"""What is exchanged between two clips: units, streams that enter a block, and sets of both.

`s2.b5.stream` is the residual stream entering a block, that is everything before it; `embedding`
is the stream entering the first block, and `stream` all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.encoder import Encoder
from residual_audio.models.token_times import Range, tokens_between
from residual_audio.types import Head, Site, Unit, UnitLike, blocks_of, parse_units, unite

STREAM, EMBEDDING = "stream", "embedding"


@dataclass(frozen=True)
class Target:
    """One thing to exchange, at all tokens or at those of a time range."""

    name: str
    unit: Unit
    """Heads and sites; of a stream alone, a unit that touches nothing."""
    stream: int | None = None
    """Also the stream that enters this block, counted over all stages."""
    between: Range | None = None

    @property
    def block(self) -> int:
        """The first block that runs again."""
        return self.unit.block if self.stream is None else self.stream

    def at(self, between: Range) -> Target:
        """The same at the tokens of this time range alone."""
        if self.unit.kind == "output":
            raise InputError("the output has no tokens: it cannot be exchanged for a time range")
        return replace(self, between=between)

    def tokens(
        self, encoder: Encoder, lengths: Mapping[int, int], duration_s: float
    ) -> dict[int, Tensor] | None:
        """Stage → [token] that are exchanged; `lengths`: stage → tokens. None: all of them."""
        if self.between is None:
            return None
        touched = {head.stage for head in self.unit.heads}
        touched |= {site.stage for site in self.unit.sites}
        if self.stream is not None:
            touched.add(stage_of_block(self.stream, encoder.sites))
        return {
            stage: tokens_between(encoder, stage, lengths[stage], duration_s, self.between)
            for stage in touched
        }


def stage_of_block(block: int, sites: Sequence[Site]) -> int:
    return next(stage for (stage, _), number in blocks_of(sites).items() if number == block)


def parse_targets(
    given: UnitLike | Iterable[UnitLike], sites: Sequence[Site]
) -> tuple[Target, ...]:
    """Units as everywhere (`types.parse_units`), and streams; each once, in the order given."""
    single = isinstance(given, Unit | Head | Site | str)
    items: Iterable[UnitLike] = (given,) if single else given  # type: ignore[assignment]
    found: dict[str, Target] = {}
    for item in items:
        for target in _parse(item, sites):
            found.setdefault(target.name, target)
    if not found:
        raise InputError("there is no unit to exchange")
    return tuple(found.values())


def joined(targets: Sequence[Target], name: str) -> Target:
    """All of these as one."""
    if any(target.unit.kind == "output" for target in targets):
        raise InputError("the output is everything already: it cannot be part of a set")
    if len({target.between for target in targets}) > 1:
        raise InputError("parts of one set cannot be exchanged at different time ranges")
    streams = {target.stream for target in targets if target.stream is not None}
    units = [t.unit for t in targets if t.unit.heads or t.unit.sites]
    unit = unite(units, name)
    if len(streams) > 1 or (streams and units and min(streams) > unit.block):
        raise InputError(
            f"'{name}': the stream of a set must be one, and enter the set's first block or one "
            "before it: what comes before a stream is replaced with it"
        )
    between = targets[0].between if targets else None
    return Target(name, unit, min(streams, default=None), between)


def _parse(item: UnitLike, sites: Sequence[Site]) -> tuple[Target, ...]:
    if not isinstance(item, str):
        return tuple(Target(unit.name, unit) for unit in parse_units(item, sites))
    text = item.strip()
    name, _, members = text.rpartition("=")
    if name or "+" in members:
        parts = [target for part in members.split("+") for target in _parse(part, sites)]
        return (joined(parts, name or members),)
    if text == EMBEDDING:
        return (Target(EMBEDDING, unite((), EMBEDDING), 0),)
    if text == STREAM or text.endswith(f".{STREAM}"):
        return _streams(text, sites)
    return tuple(Target(unit.name, unit) for unit in parse_units(text, sites))


def _streams(text: str, sites: Sequence[Site]) -> tuple[Target, ...]:
    pattern = "s*.b*.stream" if text == STREAM else text
    found = []
    for (stage, block), number in blocks_of(sites).items():
        name = f"s{stage}.b{block}.{STREAM}"
        fits = map(fnmatchcase, name.split("."), pattern.split("."))
        if pattern.count(".") == 2 and all(fits):
            found.append(Target(name, unite((), name), number))
    if not found:
        raise InputError(
            f"'{text}' is no stream of this encoder: expected a name like s2.b0.stream; * stands "
            "for any part"
        )
    return tuple(found)
