"""Dividing clips for training and testing. A group (recording, speaker, song) is never torn.

Everything is decided by the seed and the clips' groups and labels, not by their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from residual_audio.data.base import Dataset
from residual_audio.errors import DatasetError, InputError
from residual_audio.types import Clip

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Folds:
    """Which fold each clip is tested in."""

    assignment: Index
    """[clip], 0 … n_folds − 1."""
    names: tuple[str, ...]
    source: str
    """How they came about, for the record of a result."""
    moved: int = 0
    """Clips taken out of their official fold because it tore their group."""

    def __len__(self) -> int:
        return len(self.names)

    def test(self, fold: int) -> Index:
        return np.flatnonzero(self.assignment == fold)

    def train(self, fold: int) -> Index:
        return np.flatnonzero(self.assignment != fold)


def group_of(clip: Clip) -> str:
    """A clip without a group stands alone."""
    return clip.id if clip.group is None else clip.group


def grouped_folds(clips: Sequence[Clip], n_folds: int, seed: int = 0) -> Index:
    """Fold of each clip: whole groups, each class spread over the folds as evenly as they allow."""
    if n_folds < 2:
        raise InputError(f"{n_folds} folds make no split: give 2 or more")
    n_groups = len({group_of(clip) for clip in clips})
    if n_groups < n_folds:
        raise DatasetError(
            f"{len(clips)} clips in {n_groups} groups cannot be cut into {n_folds} folds without "
            "tearing a group: use fewer folds"
        )
    return _assign(clips, np.full(n_folds, 1.0 / n_folds), seed)


def grouped_split(clips: Sequence[Clip], fraction: float, seed: int = 0) -> Mask:
    """True for about this fraction of each class, in whole groups, to be held out for validation.
    A class with a single group stays in training."""
    if not 0.0 < fraction < 1.0:
        raise InputError(f"a held-out fraction of {fraction} makes no sense: give 0 to 1")
    return _assign(clips, np.array([1.0 - fraction, fraction]), seed) == 1


def few_shot(clips: Sequence[Clip], n_shots: int, seed: int = 0) -> Index:
    """`n_shots` clips of every class, each from another group while there are groups left."""
    if n_shots < 1:
        raise InputError(f"{n_shots} clips a class make no sense: give 1 or more")
    by_class: dict[str, dict[str, list[int]]] = {}
    for i, clip in enumerate(clips):
        if clip.label is None:
            raise DatasetError(f"'{clip.id}' has no label: few-shot selection goes by class")
        by_class.setdefault(clip.label, {}).setdefault(group_of(clip), []).append(i)
    chosen: list[int] = []
    for label, groups in sorted(by_class.items()):
        if (there := sum(map(len, groups.values()))) < n_shots:
            raise DatasetError(f"class '{label}' has only {there} clips: {n_shots} were asked for")
        order = sorted(groups, key=lambda name: _shuffle_key(seed, name))
        queues = [
            sorted(groups[name], key=lambda i: _shuffle_key(seed, clips[i].id)) for name in order
        ]
        # first one clip of each group, then the second of each, …
        turns = [q[k] for k in range(max(map(len, queues))) for q in queues if k < len(q)]
        chosen += turns[:n_shots]
    return np.array(sorted(chosen), dtype=np.int64)


def official_or_grouped_folds(
    dataset: Dataset, n_folds: int = 5, seed: int = 0, mend: bool = True
) -> Folds:
    """The official cross-validation folds where the data set has them, else grouped ones.

    Official folds are kept as they are, except that a group they tear goes whole into the fold
    that holds most of it (unless `mend` is False). Named splits (train, test) are no
    cross-validation and are not used.
    """
    official = dataset.folds and all(name.isdigit() for name in dataset.folds.values())
    present = sorted({clip.fold for clip in dataset.clips if clip.fold is not None})
    complete = all(clip.fold is not None for clip in dataset.clips)
    if not (official and complete and len(present) > 1):
        names = tuple(str(i + 1) for i in range(n_folds))
        return Folds(
            grouped_folds(dataset.clips, n_folds, seed),
            names,
            f"grouped, {n_folds} folds, seed {seed}",
        )
    number = {fold: i for i, fold in enumerate(present)}
    assignment = np.array([number[c.fold] for c in dataset.clips if c.fold is not None], np.int64)
    whole = _mend(dataset.clips, assignment, len(present)) if mend else assignment
    moved = int((whole != assignment).sum())
    source = "official" if not moved else f"official, {moved} clips moved to keep groups whole"
    return Folds(whole, tuple(dataset.folds[fold] for fold in present), source, moved)


def torn_groups(clips: Sequence[Clip]) -> int:
    """How many groups the official folds divide."""
    folds: dict[str, set[int | None]] = {}
    for clip in clips:
        folds.setdefault(group_of(clip), set()).add(clip.fold)
    return sum(len(found) > 1 for found in folds.values())


def _mend(clips: Sequence[Clip], assignment: Index, n_folds: int) -> Index:
    rows: dict[str, list[int]] = {}
    for i, clip in enumerate(clips):
        rows.setdefault(group_of(clip), []).append(i)
    out = assignment.copy()
    for members in rows.values():
        out[members] = np.bincount(assignment[members], minlength=n_folds).argmax()
    return out


def _assign(clips: Sequence[Clip], shares: npt.NDArray[np.float64], seed: int) -> Index:
    """Large groups first, each into the part that has least of its classes for its share."""
    labels = {label: i for i, label in enumerate(sorted({c.label or "" for c in clips}))}
    members: dict[str, list[int]] = {}
    for i, clip in enumerate(clips):
        members.setdefault(group_of(clip), []).append(i)
    of_class = np.array([labels[clip.label or ""] for clip in clips], dtype=np.int64)
    order = sorted(members, key=lambda name: (-len(members[name]), _shuffle_key(seed, name)))
    total = np.bincount(of_class, minlength=len(labels)).astype(float)
    held = np.zeros((len(shares), len(labels)))  # part class
    size = np.zeros(len(shares))
    out = np.empty(len(clips), dtype=np.int64)
    for name in order:
        rows = members[name]
        kinds, counts = np.unique(of_class[rows], return_counts=True)
        # how full each part would be with the group in it: ties go to the larger, emptier part
        fill = (held[:, kinds] + counts) / (total[kinds] * shares[:, None])
        part = min(
            range(len(shares)),
            key=lambda p: (round(float(fill[p] @ counts), 9), size[p] / shares[p], p),
        )
        held[part, kinds] += counts
        size[part] += len(rows)
        out[rows] = part
    return out


def _shuffle_key(seed: int, name: str) -> bytes:
    return blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
