"""Compositional pairs made from any labelled data set: two recordings joined in time, or mixed.

    residual-audio compa -d joined --root ESC-50 --data-option of=esc50 --data-option folds=4

An item is two clips of the same two excerpts. For `order` one follows the other, and the other way
round; for `attribute` they sound together, and one is louder, higher or nearer, and the other way
round. Everything follows from the seed and the names of the recordings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from residual_audio.data.base import Card, Dataset, Pair, Wave
from residual_audio.data.draws import Draws
from residual_audio.data.excerpts import ATTRIBUTES, Seam, follow, lay_over
from residual_audio.data.hashed import Part, check_part, pair_is_in, source_is_in
from residual_audio.data.phrases import phrases_of
from residual_audio.data.splits import group_of
from residual_audio.data.wordings import frames_for, tell
from residual_audio.errors import DatasetError, InputError
from residual_audio.types import Clip

Kind = Literal["order", "attribute"]
N_CAPTIONS = 6
VERSION = 1

CARD = Card(
    name="joined",
    title="Compositional pairs joined from the recordings of a labelled data set",
    task="pairs",
    licence="that of the data set it is made from",
    citation="",
    url="",
    layout="that of the data set it is made from",
    download="Give the folder of a labelled data set (--root) and its name (of=esc50).",
    group="a cell of recordings: an item joins two of one cell, and no recording is in two cells",
    options={
        "of": "the labelled data set the recordings are from (esc50)",
        "kind": "order or attribute",
        "folds": "only recordings of these folds, such as 4 or 1,2,3",
        "n_items": "at most how many items (200)",
        "seed": "seed of what is joined, and how",
        "wording": "plain, many, more, grammar, choosing, held-out, unordered, or a frame: "
        "'{1} before {0}'",
        "class_pairs": "all, train or held-out: a fifth of the class pairs is never trained on",
        "sources": "all, train or held-out: a tenth of the recordings is for choosing settings",
        "attribute": "only this one: loudness, pitch or distance (kind attribute)",
        "duration_s": "length of a clip in seconds (5)",
        "of_options": "options of the data set the recordings are from (from Python and recipes)",
    },
)


@dataclass(frozen=True)
class Item:
    """Which two recordings, and how they are put together."""

    id: str
    clips: tuple[Clip, Clip]
    cell: int
    attribute: str
    joint: Seam


@dataclass(frozen=True)
class Joiner:
    """Makes the sound of both clips of every item."""

    source: Dataset
    items: dict[str, Item]
    duration_s: float

    def wave(self, clip: Clip, sample_rate_hz: int) -> Wave:
        name, side = clip.id.rsplit("-", 1)
        item = self.items[name]
        waves = [_read(_Reader(self.source), part, sample_rate_hz) for part in item.clips]
        n = round(self.duration_s * sample_rate_hz)
        exchanged = side == "b"
        if item.attribute:
            return lay_over(waves, sample_rate_hz, n, item.joint, item.attribute, exchanged)
        return follow(waves, sample_rate_hz, n, item.joint, exchanged)


@dataclass(frozen=True, eq=False)
class _Reader:
    """A data set as a key: both clips of an item are made from the same two recordings."""

    source: Dataset

    def __hash__(self) -> int:
        return id(self.source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reader) and other.source is self.source


@lru_cache(maxsize=8)
def _read(reader: _Reader, clip: Clip, sample_rate_hz: int) -> Wave:
    return reader.source.read(clip, sample_rate_hz)


@dataclass(frozen=True)
class JoinedOptions:
    """What a data set of joined clips is told; see `CARD.options`."""

    of: str = "esc50"
    kind: Kind = "order"
    folds: str | int | Sequence[int | str] | None = None
    n_items: int = 200
    seed: int = 0
    wording: str = "plain"
    class_pairs: str = "all"
    sources: str = "all"
    attribute: str | None = None
    duration_s: float = 5.0
    of_options: Mapping[str, Any] = field(default_factory=dict)


OPTIONS = JoinedOptions
"""What people may say, by name."""


def load(root: Path | None = None, options: JoinedOptions | None = None) -> Dataset:
    """Items of two clips each."""
    told = options or JoinedOptions()
    _check(told)
    source = _labelled(root, told)
    parts = check_part(told.class_pairs, "class_pairs"), check_part(told.sources, "sources")
    items = [
        _item(told.kind, told.seed, cell, two, told.attribute)
        for cell, two in choose(source, told.n_items, told.seed, *parts)
    ]
    if not items:
        raise DatasetError(
            f"no two recordings of {source.name} can be joined: it takes two classes and two "
            f"sources (class_pairs={told.class_pairs}, sources={told.sources}, folds={told.folds})"
        )
    pairs = tuple(
        _pair(told.kind, item, told.wording, Draws(told.seed, told.kind, item.id, "words"))
        for item in items
    )
    joiner = Joiner(source, {item.id: item for item in items}, told.duration_s)
    return Dataset(
        name="joined",
        root=source.root,
        clips=tuple(clip for pair in pairs for clip in pair.clips),
        card=CARD,
        pairs=pairs,
        recipe=(
            f"version={VERSION} of={source.fingerprint()} kind={told.kind} seed={told.seed} "
            f"wording={told.wording} class_pairs={told.class_pairs} sources={told.sources} "
            f"attribute={told.attribute} duration_s={told.duration_s}"
        ),
        make=joiner.wave,
    )


def _check(told: JoinedOptions) -> None:
    kind, attribute = told.kind, told.attribute
    if kind not in ("order", "attribute"):
        raise InputError(f"joined has no kind '{kind}'; there are: order, attribute")
    if told.n_items < 1:
        raise InputError(f"{told.n_items} items make no sense: give 1 or more")
    if attribute is not None and (kind == "order" or attribute not in ATTRIBUTES):
        raise InputError(
            f"attribute '{attribute}' of kind {kind}: kind attribute has {', '.join(ATTRIBUTES)}"
        )
    if not 1.0 <= told.duration_s <= 60.0:
        raise InputError(f"joined clips of {told.duration_s} s: give 1 to 60 seconds")
    if told.wording != "unordered":
        frames_for(kind, attribute or "loudness", told.wording)


def _labelled(root: Path | None, told: JoinedOptions) -> Dataset:
    from residual_audio.data.registry import load_dataset

    if told.of.partition(":")[0] == "joined":
        raise InputError("joined clips cannot be joined again: name a labelled data set (of=esc50)")
    source = load_dataset(told.of, root, **told.of_options)
    if told.folds is not None:
        wanted = told.folds.split(",") if isinstance(told.folds, str) else told.folds
        source = source.select(folds=[wanted] if isinstance(wanted, int) else wanted)
    if not source.classes:
        raise DatasetError(f"{source.name} has no labels to make captions of")
    return source


def choose(
    source: Dataset, n_items: int, seed: int, class_pairs: Part, sources: Part
) -> Iterator[tuple[int, tuple[Clip, Clip]]]:
    """(cell, two recordings) of each item: never of one class, never of one source.

    Recordings are dealt into cells and joined inside their cell only, so cells are independent of
    each other: they are what is resampled. They are as small as the number of items allows.
    """
    takes: dict[str, list[Clip]] = {}
    for clip in source.clips:
        if clip.label is not None and clip.id not in source.missing:
            takes.setdefault(group_of(clip), []).append(clip)
    names = sorted(name for name in takes if source_is_in(name, sources))
    names = Draws(seed, "cells").some(names, len(names))
    size, cells = 2, []
    while True:
        cells = [
            _within(names[i : i + size], takes, seed, class_pairs)
            for i in range(0, len(names), size)
        ]
        if sum(len(cell) for cell in cells) >= n_items or size >= len(names):
            break
        size *= 2
    made = 0
    for turn in range(max((len(cell) for cell in cells), default=0)):
        for number, cell in enumerate(cells):
            if turn < len(cell) and made < n_items:
                made += 1
                yield number, cell[turn]


def _within(
    names: Sequence[str], takes: dict[str, list[Clip]], seed: int, class_pairs: Part
) -> list[tuple[Clip, Clip]]:
    """What can be joined inside one cell, in random order."""
    found = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            draws = Draws(seed, "takes", first, second)
            a, b = draws.pick(takes[first]), draws.pick(takes[second])
            if a.label != b.label and pair_is_in(str(a.label), str(b.label), class_pairs):
                found.append((a, b))
    return Draws(seed, "within", *names).some(found, len(found))


def _item(
    kind: Kind, seed: int, cell: int, clips: tuple[Clip, Clip], attribute: str | None
) -> Item:
    name = f"{clips[0].id}+{clips[1].id}".replace("/", "_")
    which = ""
    if kind == "attribute":
        which = attribute or Draws(seed, name, "attribute").pick(ATTRIBUTES)
    return Item(name, clips, cell, which, Seam.draw(Draws(seed, kind, name, "joint")))


def _pair(kind: Kind, item: Item, wording: str, draws: Draws) -> Pair:
    a, b = (phrases_of(str(clip.label)) for clip in item.clips)
    captions = tell(kind, item.attribute, wording, (a, b), draws, N_CAPTIONS)
    clips = tuple(
        Clip(id=f"{item.id}-{side}", captions=said, group=f"{item.cell:05d}")
        for side, said in zip("ab", captions, strict=True)
    )
    return Pair(item.id, (captions[0][0], captions[1][0]), clips)
