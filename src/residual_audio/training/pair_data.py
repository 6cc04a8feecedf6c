"""Compositional pairs to learn from: both clips of every item, and captions that part them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.data.base import Pair
from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress
from residual_audio.training.batches import share_out
from residual_audio.training.recipe import PairData
from residual_audio.training.training_clips import features_of
from residual_audio.training.training_loop import generator

Captions = tuple[tuple[str, ...], tuple[str, ...]]
"""Of both clips of an item."""


@dataclass(frozen=True)
class PairClips:
    """Items of several data sets, one after the other."""

    features: Tensor
    """Log-mel, float16: [item, 2, frame, mel]."""
    captions: list[Captions]
    """Of each item, the captions of both clips; caption k of one is caption k of the other with
    the sounds exchanged."""
    sources: Tensor
    """Which data set of the recipe an item is from."""
    fingerprints: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.captions)


def load_pairs(
    parts: Sequence[PairData],
    spec: FrontEndSpec,
    root: Path,
    cache: Path,
    progress: Progress = SILENT,
    told: bool = True,
) -> PairClips:
    """Make every clip once, or read its log-mel from the cache; `told` as in the recipe."""
    features, sources, prints = [], [], []
    captions: list[Captions] = []
    for number, part in enumerate(parts):
        place = None if part.root is None else root / part.root
        data = load_dataset(part.dataset, place, **part.options)
        pairs = [p for p in data.pairs if not any(c.id in data.missing for c in p.clips[:2])]
        if not pairs:
            raise InputError(f"'{part.dataset}' has no compositional pairs to learn from")
        clips = [clip for pair in pairs for clip in pair.clips[:2]]
        found = features_of(part.dataset, data, clips, spec, cache, progress)
        features.append(found.unflatten(0, (len(pairs), 2)))
        if not told:  # the same sounds under other words
            pairs = _worded(part, place, "unordered", pairs)
        captions += [_captions(pair) for pair in pairs]
        sources += [number] * len(pairs)
        prints.append(data.fingerprint())
    return PairClips(torch.cat(features), captions, torch.tensor(sources), tuple(prints))


def reworded(parts: Sequence[PairData], pairs: PairClips, root: Path) -> PairClips:
    """Pairs that were loaded without a wording, under the captions of the wording they ask for."""
    captions: list[Captions] = []
    for number, part in enumerate(parts):
        place = None if part.root is None else root / part.root
        bare = load_dataset(part.dataset, place, **without_wording(part).options)
        there = [p for p in bare.pairs if not any(c.id in bare.missing for c in p.clips[:2])]
        found = _worded(part, place, part.options.get("wording", ""), there)
        captions += [_captions(pair) for pair in found]
        if len(found) != int((pairs.sources == number).sum()):
            raise InputError(f"'{part.dataset}' has other items in this wording than without one")
    return replace(pairs, captions=captions)


def without_wording(part: PairData) -> PairData:
    """The same sounds: what they are called is not in it, so their log-mels are kept once."""
    options = {key: value for key, value in part.options.items() if key != "wording"}
    return part.model_copy(update={"options": options})


def _worded(part: PairData, place: Path | None, wording: str, pairs: Sequence[Pair]) -> list[Pair]:
    if not wording:
        return list(pairs)
    data = load_dataset(part.dataset, place, **part.options | {"wording": wording})
    by_id = {pair.id: pair for pair in data.pairs}
    return [by_id[pair.id] for pair in pairs]


def _captions(pair: Pair) -> Captions:
    first, second = (clip.captions for clip in pair.clips[:2])
    aligned = len(first) == len(second)  # as this package makes them
    return (first, second) if aligned else ((pair.captions[0],), (pair.captions[1],))


@dataclass(frozen=True)
class PairBatch:
    """Items of one step: clip 2i and 2i + 1 are a pair, text (2i, k) and (2i + 1, k) too."""

    features: Tensor
    """[2 · item, frame, mel]"""
    texts: list[str]
    """2 · item · k texts, those of one clip next to each other."""
    k: int

    @property
    def n_clips(self) -> int:
        return len(self.features)

    def positives(self) -> Tensor:
        """[clip, text] every text that is said of a clip, whichever clip it was drawn for."""
        own = [self.texts[i * self.k : (i + 1) * self.k] for i in range(self.n_clips)]
        return torch.tensor([[text in mine for text in self.texts] for mine in own]).float()

    def told_apart(self) -> Tensor:
        """[item, k] False where both clips have the very same caption: nothing is exchanged."""
        texts = [self.texts[i * self.k : (i + 1) * self.k] for i in range(self.n_clips)]
        return torch.tensor(
            [
                [a != b for a, b in zip(texts[i], texts[i + 1], strict=True)]
                for i in range(0, self.n_clips, 2)
            ]
        )


class PairBatches:
    """Every data set is gone through in a new order each epoch; shares decide how fast."""

    def __init__(
        self,
        parts: Sequence[PairData],
        pairs: PairClips,
        seed: int,
        n_items: int,
        k: int,
        steps: int = 1,
    ) -> None:
        self.pairs, self.seed, self.k = pairs, seed, k
        self.parts, self.n_items, self.steps = parts, n_items, steps
        if all(part.begins for part in parts):
            raise InputError("compose.data: pairs of at least one data set must begin at 0")
        self.members = [(pairs.sources == s).nonzero().flatten() for s in range(len(parts))]
        self._order = lru_cache(maxsize=2 * len(parts) + 2)(self._shuffled)

    def _shuffled(self, source: int, epoch: int) -> Tensor:
        members = self.members[source]
        draw = generator(self.seed, 1000 + source, epoch)
        return members[torch.randperm(len(members), generator=draw)]

    def counts(self, step: int) -> dict[int, int]:
        """Data set → its items in a step; those that have not begun give their places away."""
        there = [s for s, part in enumerate(self.parts) if step >= part.begins * self.steps]
        shares = share_out(self.n_items, [self.parts[s].share for s in there])
        return dict(zip(there, shares, strict=True))

    def rows(self, step: int) -> list[int]:
        """Items of a step."""
        return [
            int(self._order(source, i // len(self.members[source]))[i % len(self.members[source])])
            for source, count in self.counts(step).items()
            for i in range(step * count, (step + 1) * count)
        ]

    def at(self, step: int) -> PairBatch:
        rows = self.rows(step)
        draw = generator(self.seed, 2, step)
        texts: list[str] = []
        for row in rows:
            captions = self.pairs.captions[row]
            order = torch.randperm(len(captions[0]), generator=draw).tolist()
            chosen = [order[i % len(order)] for i in range(self.k)]
            for said in captions:
                texts += [said[i] for i in chosen]
        return PairBatch(self.pairs.features[rows].flatten(0, 1).float(), texts, self.k)
