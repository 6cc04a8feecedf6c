"""Two clips and what tells them apart: what interchange interventions work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from residual_audio.data.base import Dataset, Pair
from residual_audio.errors import DatasetError, InputError, ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Features
from residual_audio.passes.lengths import Rows
from residual_audio.passes.loop import Cut, Hearing, Item, hear
from residual_audio.passes.sources import AudioInput, cut_clips, cut_inputs, reason
from residual_audio.patching.measures import (
    Measure,
    MeasureName,
    TextMargin,
    likeness,
)
from residual_audio.progress import SILENT, Progress


@dataclass(frozen=True)
class Exchange:
    """One direction of one pair: values of `clean` are put into `corrupt`."""

    pair: str
    group: str
    """Pairs of one source belong together."""
    clean: int
    corrupt: int
    """Rows of the features."""
    measure: Measure


@dataclass(frozen=True)
class Exchanges:
    """A model, the features of all clips, and the exchanges between them."""

    model: AudioTextModel
    features: Rows
    durations_s: tuple[float, ...]
    """Of each row, what the model hears of it."""
    items: tuple[Exchange, ...]
    skipped: Mapping[str, str]
    """Pair or clip → why it is not here."""
    measured_by: str
    """Name of the measure."""

    def __len__(self) -> int:
        return len(self.items)

    @property
    def groups(self) -> list[str]:
        return [item.group for item in self.items]

    def part(self, which: Sequence[int]) -> Exchanges:
        """These exchanges only."""
        items = tuple(self.items[i] for i in which)
        return Exchanges(
            self.model, self.features, self.durations_s, items, self.skipped, self.measured_by
        )

    def together(self, n_clips: int) -> Iterator[tuple[list[int], list[int]]]:
        """(numbers of exchanges, rows of their clips): neighbours that fit into a pass of so many
        clips of one length; no clip is the corrupt one twice in a pass."""
        numbers: list[int] = []
        rows: dict[int, None] = {}
        for i, item in enumerate(self.items):
            mine = dict.fromkeys((item.clean, item.corrupt))
            lengths = {int(self.features.group[row]) for row in (*rows, *mine)}
            again = any(self.items[j].corrupt == item.corrupt for j in numbers)
            if numbers and (len(rows | mine) > max(2, n_clips) or len(lengths) > 1 or again):
                yield numbers, list(rows)
                numbers, rows = [], {}
            numbers.append(i)
            rows |= mine
        if numbers:
            yield numbers, list(rows)


def exchanges_of_pairs(
    model: AudioTextModel,
    dataset: Dataset,
    measure: MeasureName = "difference",
    hearing: Hearing | None = None,
    progress: Progress = SILENT,
) -> Exchanges:
    """Both directions of every pair of a data set (the first two clips of a triplet)."""
    if not dataset.pairs:
        raise DatasetError(
            f"{dataset.name} has no pairs and no two classes: use compa-order, compa-attribute, "
            "synthetic with kind=order or kind=attribute, or a table of your own (pairs)"
        )
    hearing = hearing or Hearing()
    clips = list({clip.id: clip for pair in dataset.pairs for clip in pair.clips[:2]}.values())
    present = [clip for clip in clips if clip.id not in dataset.missing]
    heard = hear_features(
        model, present, cut_clips(model, dataset, hearing.long), hearing, progress
    )
    skipped = {i: dataset.missing[i] for clip in clips if (i := clip.id) in dataset.missing}
    skipped |= {present[p].id: reason(error, present[p]) for p, error in heard.skipped.items()}
    row = {present[place].id: i for i, place in enumerate(heard.places)}
    readable = []
    for pair in dataset.pairs:
        ids = [clip.id for clip in pair.clips[:2]]
        if any(i not in row for i in ids):
            continue
        if heard.features.group[row[ids[0]]] != heard.features.group[row[ids[1]]]:
            skipped[pair.id] = "its two clips are of different lengths: give --long center"
            continue
        readable.append(pair)
    if not readable:
        raise DatasetError(f"no pair of {dataset.name} has two clips that can be exchanged")
    aims = _aims(model, readable, measure)
    items = tuple(
        Exchange(pair.id, pair.group, row[pair.clips[i].id], row[pair.clips[1 - i].id], aims(k, i))
        for k, pair in enumerate(readable)
        for i in (0, 1)
    )
    return Exchanges(model, heard.features, heard.durations_s, items, skipped, measure)


@dataclass(frozen=True)
class Sounds:
    """Files or waveforms; clip i of `clean` goes into clip i of `corrupt`."""

    clean: Sequence[AudioInput]
    corrupt: Sequence[AudioInput]
    sample_rate_hz: int | None = None
    """Of waveforms."""
    groups: Sequence[str] | None = None
    """Pairs of one source share a group; without them each pair stands for itself."""


def exchanges_of_sounds(
    model: AudioTextModel,
    sounds: Sounds,
    texts: Sequence[tuple[str, str]] | None,
    measure: MeasureName | Measure = "difference",
    hearing: Hearing | None = None,
    progress: Progress = SILENT,
) -> Exchanges:
    """`texts`: of each pair, the clean and the corrupt caption. A file that cannot be read is an
    error that names it."""
    clean, corrupt, groups = sounds.clean, sounds.corrupt, sounds.groups
    if groups is not None and len(groups) != len(clean):
        raise InputError(f"{len(groups)} groups were given for {len(clean)} pairs")
    if len(clean) != len(corrupt) or not clean:
        raise InputError(f"{len(clean)} clean clips for {len(corrupt)} corrupt ones: give as many")
    hearing = hearing or Hearing()
    n = len(clean)
    cut = cut_inputs(model, hearing.long, sounds.sample_rate_hz)
    heard = hear_features(model, [*clean, *corrupt], cut, hearing, progress, strict=True)
    for i in range(n):
        if heard.features.group[i] != heard.features.group[n + i]:
            raise InputError(
                f"pair {i}: its clips are of different lengths, and this model hears all of them: "
                'cut them to one length, or give long="center"'
            )
    aims: Callable[[int], Measure]
    if callable(measure):
        name, given = getattr(measure, "__name__", "own"), measure
        aims = lambda i: given  # noqa: E731
    elif measure == "embedding":
        name, aims = measure, lambda i: likeness
    elif texts is None or len(texts) != n:
        raise InputError(
            f"measure '{measure}' needs two captions a pair (of the clean and of the corrupt "
            f"clip): texts for {0 if texts is None else len(texts)} of {n} pairs were given"
        )
    else:
        pairs = [Pair(str(i), tuple(two), ()) for i, two in enumerate(texts)]
        of_pair = _aims(model, pairs, measure)
        name, aims = measure, lambda i: of_pair(i, 0)
    items = tuple(
        Exchange(str(i), str(i) if groups is None else groups[i], i, n + i, aims(i))
        for i in range(n)
    )
    return Exchanges(model, heard.features, heard.durations_s, items, {}, name)


@dataclass(frozen=True)
class HeardFeatures:
    """Features of the clips that could be heard."""

    features: Rows
    places: list[int]
    """The place of each row."""
    durations_s: tuple[float, ...]
    skipped: Mapping[int, Exception]


@torch.no_grad()
def hear_features(
    model: AudioTextModel,
    items: Sequence[Item],
    cut: Cut[Item],
    hearing: Hearing,
    progress: Progress,
    strict: bool = False,
) -> HeardFeatures:
    """Features of one window of each item, and what could not be heard."""
    if hearing.long == "tile":
        raise InputError("one window of a clip is exchanged, not all: use long first or center")
    skipped: dict[int, Exception] = {}
    parts: list[Features] = []
    places: list[int] = []
    durations: list[float] = []
    progress.step("features", len(items))
    skip = None if strict else skipped.__setitem__
    with closing(hear(items, cut, hearing, device=model.device, skip=skip)) as batches:
        for waves, here in batches:
            parts.append(model.features(waves))
            places += here
            durations += [waves.shape[1] / model.sample_rate_hz] * len(here)
            progress.advance(len(here))
    counted = iter(range(len(places)))
    sized = [(torch.tensor([next(counted) for _ in _rows(part)]), part) for part in parts]
    rows = Rows.collect(sized, len(places))
    return HeardFeatures(rows, places, tuple(durations), skipped)


def _rows(features: Features) -> Tensor:
    return features[0] if isinstance(features, tuple) else features


def _aims(
    model: AudioTextModel, pairs: Sequence[Pair], measure: MeasureName
) -> Callable[[int, int], Measure]:
    """(pair, side that is clean) → measure."""
    if measure == "embedding":
        return lambda pair, side: likeness
    if model.text is None:
        raise ModelError(
            f"'{model.name}' has no text side: patch it by measure 'embedding', or on a labelled "
            "data set without pairs, whose classes are told apart by centroids"
        )
    said = list(dict.fromkeys(caption for pair in pairs for caption in pair.captions[:2]))
    place = {caption: i for i, caption in enumerate(said)}
    vectors = torch.from_numpy(np.array(model.embed_text(said))).to(model.device)

    def aim(pair: int, side: int) -> Measure:
        own = place[pairs[pair].captions[side]]
        if measure == "difference":
            other = place[pairs[pair].captions[1 - side]]
            return TextMargin(vectors[own : own + 1], vectors[other : other + 1])
        rest = torch.arange(len(said)) != own
        return TextMargin(vectors[own : own + 1], vectors[rest.to(vectors.device)])

    return aim
