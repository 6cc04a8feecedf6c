"""What every data set offers: clips with labels, captions, folds and groups, and their sound."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from residual_audio.errors import AudioError, DatasetError, InputError
from residual_audio.types import Clip

if TYPE_CHECKING:
    from residual_audio.audio.decode import SoundBytes

Wave = npt.NDArray[np.float32]

TEMPLATE = "This is a sound of {}."


@dataclass(frozen=True)
class Card:
    """What a data set is, under which terms, and where to get it."""

    name: str
    title: str
    task: str
    """labels, captions or pairs."""
    licence: str
    citation: str
    url: str
    layout: str
    """Files below the root, as people have them after unpacking the release."""
    download: str
    """What to download and where to put it."""
    n_clips: int | None = None
    """Clips of the full release; None where there is no such number."""
    n_classes: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Clips of each fold, split or class of the full release, or its `items` (pairs)."""
    group: str = ""
    """What a group is, so that one can judge what splits keep together."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the loader and what they do."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One compositional item: caption i describes clip i, the words are (nearly) the same."""

    id: str
    captions: tuple[str, ...]
    """Of the pair, the reversed pair and, where there is one, the triplet."""
    clips: tuple[Clip, ...]

    @property
    def group(self) -> str:
        """Items made from one source share it."""
        return next((clip.group for clip in self.clips if clip.group), None) or self.id


@dataclass(frozen=True, repr=False)
class Dataset:
    """Clips in a fixed order, and how to read them. Metadata is in memory, sound is not.

    >>> import residual_audio as ra
    >>> ra.load_dataset("synthetic", classes="rain,wind", n_clips=20)
    Dataset synthetic: 20 clips, 2 classes, 5 folds
    """

    name: str
    root: Path | None
    clips: Sequence[Clip]
    card: Card
    classes: tuple[str, ...] = ()
    """Label texts as they stand in a prompt."""
    template: str = TEMPLATE
    pairs: Sequence[Pair] = ()
    folds: Mapping[int, str] = field(default_factory=dict)
    """Official fold number → its name ("1", "train" …)."""
    splits: tuple[str, ...] = ()
    """Harder folds that its table allows: `FILE#COLUMN` for whole values out, `FILE#COLUMN:blocks`
    for stretches along it."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Clip id → why it has no sound. Such clips stay in `clips`."""
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Files that look like clips but are not used → why."""
    recipe: str = ""
    """What else decides the content: the options of clips made on demand."""
    make: Callable[[Clip, int], Wave] | None = None
    """Makes the sound of a clip that has no file."""
    fetch: Callable[[Clip], bytes] | None = None
    """Reads the sound file of a clip that lies inside another file; nothing is unpacked to disk."""
    part_of: int | None = None
    """Clips of the whole that a limit or a sample was taken from; None where nothing was left."""

    def __len__(self) -> int:
        return len(self.clips)

    def __repr__(self) -> str:
        of = "" if self.part_of is None else f" (of {self.part_of:,})"
        counts = {
            "classes": len(self.classes), "pairs": len(self.pairs), "folds": len(self.folds),
            "without sound": len(self.missing), "files not used": len(self.ignored),
        }  # fmt: skip
        said = "".join(f", {n:,} {what}" for what, n in counts.items() if n)
        where = "" if self.root is None else f" in {self.root}"
        return f"Dataset {self.name}{where}: {len(self):,} clips{of}{said}"

    def status(self, clip: Clip) -> str:
        """`ok`, or `skipped(reason)`."""
        reason = self.missing.get(clip.id)
        return "ok" if reason is None else f"skipped({reason})"

    def read(
        self, clip: Clip, sample_rate_hz: int, max_s: float | None = None, middle: bool = False
    ) -> Wave:
        """The clip as float32 mono at the rate asked for; of a file, with `max_s`, no more is
        decoded than its beginning, or its middle. Of a clip that is a window only that window is
        read."""
        place = self.sound(clip)
        start, n = None, None if max_s is None else max(1, round(max_s * sample_rate_hz))
        if clip.span is not None:
            start, n = (round(x * sample_rate_hz) for x in clip.span)
        if place is None:
            assert self.make is not None
            if clip.span is None:
                return self.make(clip, sample_rate_hz)
            return self.make(replace(clip, id=clip.part_of or clip.id), sample_rate_hz)[start:][:n]
        from residual_audio.audio.decode import load_audio
        from residual_audio.audio.spans import load_span

        if n is None or (start is None and not middle):
            return load_audio(place, sample_rate_hz, max_s)
        return load_span(place, sample_rate_hz, n, start)

    def sound(self, clip: Clip) -> Path | SoundBytes | None:
        """The clip's file, or its bytes where it lies inside another; None where it is made."""
        if clip.id in self.missing:
            raise AudioError(f"'{clip.id}' of {self.name}: {self.missing[clip.id]}")
        if clip.path is None:
            if self.make is None:
                raise AudioError(f"'{clip.id}' of {self.name} has no file")
            return None
        if clip.inside is not None and self.fetch is not None:
            from residual_audio.audio.decode import SoundBytes

            return SoundBytes(clip.part_of or clip.id, self.fetch(clip))
        return clip.path

    def prompts(self, template: str | None = None) -> tuple[str, ...]:
        """One prompt a class."""
        return tuple((template or self.template).replace("{}", label) for label in self.classes)

    def fingerprint(self) -> str:
        """sha256 over ids, labels, captions, folds, groups and the content of the files; the same
        on every machine that has the same data, wherever it lies."""
        digest = hashlib.sha256(f"{self.name}\n{self.recipe}\n{len(self.clips)}\n".encode())
        if isinstance(self.clips, tuple):  # otherwise they follow from the recipe
            for clip, content in zip(self.clips, self._contents(), strict=True):
                row = [clip.id, clip.label, clip.captions, clip.fold, clip.group, content]
                digest.update(json.dumps(row, ensure_ascii=True).encode() + b"\n")
        if self.fetch is not None:
            from residual_audio.data.contents import content_digests

            for content in content_digests(self.archives()):
                digest.update(f"{content}\n".encode())
        return digest.hexdigest()

    def archives(self) -> list[Path]:
        """Files that the clips lie in, where many lie in one."""
        files = getattr(self.clips, "files", None)
        if files is None:
            inside = (clip.path for clip in self.clips if clip.inside is not None)
            files = dict.fromkeys(path for path in inside if path is not None)
        return list(files)

    def _contents(self) -> list[str | None]:
        """Digest of each clip's file; None where it has none."""
        from residual_audio.data.contents import content_digests

        paths = {
            clip.id: clip.path
            for clip in self.clips
            # of clips inside others the file that they lie in is looked at once
            if clip.path is not None and clip.inside is None and clip.id not in self.missing
        }
        found = dict(zip(paths, content_digests(list(paths.values())), strict=True))
        return [found.get(clip.id) for clip in self.clips]

    def select(
        self,
        folds: Iterable[int | str] | None = None,
        limit: int | None = None,
        classes: Iterable[str] | None = None,
        captioned: bool = False,
        sample: int | None = None,
        seed: int = 0,
    ) -> Dataset:
        """A part: of these folds (number or name), of these classes, only with captions.

        Of at most `limit` clips spread evenly over classes (over the whole order without labels),
        or of `sample` clips drawn by the seed, as many of each class as its share of the whole.
        Both count clips that have sound; clips of a compositional item stay together.
        """
        if limit is not None and sample is not None:
            raise InputError("give a limit or a sample, not both: each says how many clips to use")
        part = self._select(folds, limit, classes, captioned)
        if sample is not None:
            part = part._drawn(sample, np.random.default_rng(seed))
        fewer = (limit is not None or sample is not None) and len(part) < len(self)
        return replace(part, part_of=self.part_of or len(self)) if fewer else part

    def _select(
        self,
        folds: Iterable[int | str] | None,
        limit: int | None,
        classes: Iterable[str] | None,
        captioned: bool,
    ) -> Dataset:
        wanted = None if folds is None else self._fold_numbers(folds)
        labels = None if classes is None else self._labels(classes)
        if limit is not None and limit < 1:
            raise InputError(f"a limit of {limit} clips makes no sense: give 1 or more")
        everything = wanted is None and labels is None and not captioned
        if everything and (limit is None or limit >= len(self.clips)):
            return self
        if everything and limit and self.make and not isinstance(self.clips, tuple):
            return self._first(limit)
        clips = [
            clip
            for clip in self.clips
            if (wanted is None or clip.fold in wanted)
            and (labels is None or clip.label in labels)
            and (clip.captions or not captioned)
        ]
        if limit is not None and self.pairs:
            return self._whole_pairs(clips, limit)
        if limit is not None and limit < len(clips):
            clips = spread([clip for clip in clips if clip.id not in self.missing], limit)
        return self._part(clips)

    def _drawn(self, n: int, rng: np.random.Generator) -> Dataset:
        """A stratified sample; of compositional items whole ones, all as likely."""
        if n < 1:
            raise InputError(f"a sample of {n} clips makes no sense: give 1 or more")
        if not self.pairs:
            heard = [clip for clip in self.clips if clip.id not in self.missing]
            return self if n >= len(self) else self._part(stratified(heard, n, rng))
        whole = [p for p in self.pairs if not any(c.id in self.missing for c in p.clips)]
        n_items = max(1, min(len(whole), n // max(len(p.clips) for p in self.pairs)))
        chosen = sorted(rng.choice(len(whole), n_items, replace=False)) if whole else []
        return self._part([clip for i in chosen for clip in whole[i].clips])

    def _first(self, limit: int) -> Dataset:
        """Of clips made on demand, which go round the classes: the first are spread already."""
        if not self.pairs:
            return self._part([self.clips[i] for i in range(limit)])
        chosen = self.pairs[: max(1, limit // len(self.pairs[0].clips))]
        clips = tuple(clip for pair in chosen for clip in pair.clips)
        return replace(self, clips=clips, pairs=tuple(chosen))

    def _part(self, clips: Sequence[Clip]) -> Dataset:
        ids = {clip.id for clip in clips}
        return replace(
            self,
            clips=tuple(clips),
            pairs=tuple(p for p in self.pairs if all(c.id in ids for c in p.clips)),
            missing={i: why for i, why in self.missing.items() if i in ids},
        )

    def _whole_pairs(self, clips: Sequence[Clip], limit: int) -> Dataset:
        ids = {clip.id for clip in clips} - set(self.missing)
        whole = [p for p in self.pairs if all(c.id in ids for c in p.clips)]
        if not whole:
            return self._part([])
        items = max(1, min(len(whole), limit // max(len(p.clips) for p in whole)))
        chosen = [whole[(2 * i + 1) * len(whole) // (2 * items)] for i in range(items)]
        return self._part([clip for pair in chosen for clip in pair.clips])

    def _fold_numbers(self, folds: Iterable[int | str]) -> set[int]:
        by_name = {name: number for number, name in self.folds.items()}
        by_name |= {str(number): number for number in self.folds}
        found = set()
        for fold in [folds] if isinstance(folds, int | str) else folds:
            if str(fold) not in by_name:
                there = ", ".join(self.folds.values()) or "none"
                raise DatasetError(f"{self.name} has no fold '{fold}'; folds there: {there}")
            found.add(by_name[str(fold)])
        return found

    def _labels(self, classes: Iterable[str]) -> set[str]:
        wanted = {classes} if isinstance(classes, str) else set(classes)
        unknown = sorted(wanted - set(self.classes))
        if unknown:
            raise DatasetError(
                f"{self.name} has no class '{unknown[0]}'; it has: {', '.join(self.classes)}"
            )
        return wanted

    def describe(self) -> dict[str, object]:
        """What a run records about it."""
        return {
            "name": self.name,
            "n_clips": len(self.clips),
            "n_missing": len(self.missing),
            "n_classes": len(self.classes),
            "n_pairs": len(self.pairs),
            "fingerprint": self.fingerprint(),
            "recipe": self.recipe or None,
            "licence": self.card.licence,
        }


def spread(clips: Sequence[Clip], limit: int) -> list[Clip]:
    """`limit` of the clips: as many of each class as of any other while they last, and within a
    class at even steps through the order (which goes by fold and group). No chance involved."""
    if limit >= len(clips):
        return list(clips)
    rows: dict[str | None, list[int]] = {}
    for i, clip in enumerate(clips):
        rows.setdefault(clip.label, []).append(i)
    quota = dict.fromkeys(rows, 0)
    left = limit
    while left:
        for label in rows:
            if left and quota[label] < len(rows[label]):
                quota[label] += 1
                left -= 1
    chosen = []
    for rank, (label, members) in enumerate(rows.items()):
        k, shift = quota[label], rank * 618 % 1000  # each class begins elsewhere: all folds occur
        chosen += [members[(1000 * j + shift) * len(members) // (1000 * k)] for j in range(k)]
    return [clips[i] for i in sorted(chosen)]


def stratified(clips: Sequence[Clip], n: int, rng: np.random.Generator) -> list[Clip]:
    """`n` of the clips, in order: of each class its share of the whole (largest remainders first),
    drawn at random within it."""
    if n >= len(clips):
        return list(clips)
    rows: dict[str | None, list[int]] = {}
    for i, clip in enumerate(clips):
        rows.setdefault(clip.label, []).append(i)
    share = np.array([n * len(members) / len(clips) for members in rows.values()])
    quota = np.floor(share).astype(int)
    order = rng.permutation(len(share))  # among equal remainders, chance decides
    behind = order[np.argsort(-(share - quota)[order], kind="stable")]
    quota[behind[: n - int(quota.sum())]] += 1
    chosen: list[int] = []
    for members, k in zip(rows.values(), quota, strict=True):
        chosen += rng.choice(members, int(k), replace=False).tolist()
    return [clips[i] for i in sorted(chosen)]
