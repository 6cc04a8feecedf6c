"""Is a data set on disk what its release says? Counts, missing, empty and undecodable files."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from residual_audio.data.base import Dataset
from residual_audio.data.splits import group_of, torn_groups
from residual_audio.errors import AudioError
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Clip


@dataclass(frozen=True)
class Count:
    """Clips of one fold, split or class: here and in the full release."""

    name: str
    found: int
    expected: int


@dataclass(frozen=True)
class Report:
    """What a check found."""

    name: str
    root: str
    n_clips: int
    """Clips that the metadata lists."""
    n_usable: int
    n_expected: int | None
    """Clips of the full release."""
    n_classes: int
    n_groups: int
    n_pairs: int
    n_torn_groups: int
    """Groups that the official folds divide."""
    counts: tuple[Count, ...]
    """Only those that differ from the release."""
    problems: dict[str, str]
    """Clip id → why it cannot be used."""
    ignored: dict[str, str]
    decoded: bool
    fingerprint: str

    @property
    def complete(self) -> bool:
        whole = self.n_expected is None or self.n_clips >= self.n_expected
        return whole and not self.problems and not any(c.found < c.expected for c in self.counts)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "complete": self.complete}


def check_dataset(
    dataset: Dataset,
    decode: bool = False,
    progress: Progress = SILENT,
) -> Report:
    """Compare a data set with its release; with `decode`, read every file to its end."""
    problems = dict(dataset.missing)
    progress.step("checking", len(dataset.clips))
    for clip in dataset.clips:
        progress.advance()
        if clip.id not in problems and (why := _problem(dataset, clip, decode)):
            problems[clip.id] = why
    expected = dataset.card.counts
    found = _counts(dataset)
    return Report(
        name=dataset.name,
        root="" if dataset.root is None else str(dataset.root),
        n_clips=len(dataset.clips),
        n_usable=len(dataset.clips) - len(problems),
        n_expected=dataset.card.n_clips,
        n_classes=len({clip.label for clip in dataset.clips if clip.label}),
        n_groups=len({group_of(clip) for clip in dataset.clips}),
        n_pairs=len(dataset.pairs),
        n_torn_groups=torn_groups(dataset.clips) if dataset.folds else 0,
        counts=tuple(
            Count(name, found.get(name, 0), n)
            for name, n in expected.items()
            if found.get(name, 0) != n
        ),
        problems=problems,
        ignored=dict(dataset.ignored),
        decoded=decode,
        fingerprint=dataset.fingerprint(),
    )


def _problem(dataset: Dataset, clip: Clip, decode: bool) -> str | None:
    if clip.path is not None and clip.inside is None and clip.path.stat().st_size == 0:
        return "empty file"
    if decode:
        try:
            dataset.read(clip, 16_000)
        except AudioError as error:
            return str(error)
    return None


def _counts(dataset: Dataset) -> Counter[str]:
    """By fold or split name and by label; the names of the two never meet."""
    found: Counter[str] = Counter()
    for clip in dataset.clips:
        if clip.fold is not None:
            found[dataset.folds.get(clip.fold, str(clip.fold))] += 1
        if clip.label is not None:
            found[clip.label] += 1
    found["items"] = len(dataset.pairs)
    return found
