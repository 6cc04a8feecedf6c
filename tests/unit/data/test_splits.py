"""Splits: no group is ever torn, classes stay balanced, the seed decides and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residual_audio.data.base import Card, Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.data.splits import (
    few_shot,
    group_of,
    grouped_folds,
    grouped_split,
    official_or_grouped_folds,
    torn_groups,
)
from residual_audio.errors import DatasetError, InputError
from residual_audio.types import Clip

CARD = Card("x", "x", "labels", "x", "", "", "x", "x")


def clips_of(rows: list[tuple[int, int]]) -> list[Clip]:
    """(class, group) → clips; a group may hold several classes."""
    return [
        Clip(id=f"{i:03d}", label=f"class {label}", group=f"g{group}")
        for i, (label, group) in enumerate(rows)
    ]


some_clips = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), min_size=8, max_size=80)


def torn(clips: list[Clip], part: np.ndarray) -> int:
    where: dict[str, set[int]] = {}
    for clip, p in zip(clips, part, strict=True):
        where.setdefault(group_of(clip), set()).add(int(p))
    return sum(len(parts) > 1 for parts in where.values())


@settings(max_examples=60, deadline=None)
@given(some_clips, st.integers(2, 5), st.integers(0, 3))
def test_folds_never_tear_a_group_and_ignore_the_order(
    rows: list[tuple[int, int]], n_folds: int, seed: int
) -> None:
    clips = clips_of(rows)
    if len({group for _, group in rows}) < n_folds:
        with pytest.raises(DatasetError, match="tearing a group"):
            grouped_folds(clips, n_folds, seed)
        return
    fold = grouped_folds(clips, n_folds, seed)
    assert torn(clips, fold) == 0
    assert set(fold) <= set(range(n_folds))
    shuffled = np.random.default_rng(seed).permutation(len(clips))
    again = grouped_folds([clips[i] for i in shuffled], n_folds, seed)
    np.testing.assert_array_equal(again, fold[shuffled])
    held = grouped_split(clips, 0.25, seed)
    assert torn(clips, held) == 0
    for label in {clip.label for clip in clips}:
        mine = np.array([clip.label == label for clip in clips])
        assert not held[mine].all() or len({c.group for c in clips if c.label == label}) > 1


def test_equal_groups_give_equal_folds_of_every_class() -> None:
    clips = clips_of(
        [(label, 10 * label + g) for label in range(4) for g in range(10) for _ in "ab"]
    )
    fold = grouped_folds(clips, 5, seed=1)
    for label in range(4):
        mine = fold[[clip.label == f"class {label}" for clip in clips]]
        assert np.bincount(mine, minlength=5).tolist() == [4] * 5
    held = grouped_split(clips, 0.2, seed=1)
    for label in range(4):
        assert held[[clip.label == f"class {label}" for clip in clips]].sum() == 4
    assert not np.array_equal(fold, grouped_folds(clips, 5, seed=2))


def test_a_class_of_one_group_stays_in_training() -> None:
    clips = clips_of([(0, g) for g in range(8)] + [(1, 99)] * 5)
    assert not grouped_split(clips, 0.3, seed=0)[8:].any()


def test_clips_without_group_stand_alone() -> None:
    clips = [Clip(id=str(i), label="a") for i in range(10)]
    assert np.bincount(grouped_folds(clips, 5)).tolist() == [2] * 5


@settings(max_examples=40, deadline=None)
@given(some_clips, st.integers(0, 3))
def test_few_shot_takes_other_groups_first(rows: list[tuple[int, int]], seed: int) -> None:
    clips = clips_of(rows)
    fewest = min(sum(c.label == label for c in clips) for label in {c.label for c in clips})
    chosen = few_shot(clips, fewest, seed)
    for label in {clip.label for clip in clips}:
        mine = [clips[i] for i in chosen if clips[i].label == label]
        groups = {clip.group for clip in clips if clip.label == label}
        assert len(mine) == fewest
        assert len({clip.group for clip in mine}) == min(fewest, len(groups))
    with pytest.raises(DatasetError, match=f"has only {fewest} clips"):
        few_shot(clips, fewest + 1, seed)


def dataset(clips: list[Clip], folds: dict[int, str]) -> Dataset:
    return Dataset("x", None, tuple(clips), CARD, folds=folds)


def test_official_folds_are_used_and_mended() -> None:
    clips = [Clip(id=str(i), label="a", fold=i % 2 + 1, group=f"g{i}") for i in range(8)]
    data = dataset(clips, {1: "1", 2: "2"})
    folds = official_or_grouped_folds(data, n_folds=5)
    assert (folds.source, folds.names, len(folds)) == ("official", ("1", "2"), 2)
    assert folds.test(0).tolist() == folds.train(1).tolist() == [0, 2, 4, 6]
    torn_one = [
        *clips,
        Clip(id="8", label="a", fold=2, group="g0"),
        Clip(id="9", fold=1, group="g0"),
    ]
    data = dataset(torn_one, {1: "1", 2: "2"})
    assert torn_groups(data.clips) == 1
    folds = official_or_grouped_folds(data)
    assert folds.moved == 1
    assert folds.source == "official, 1 clips moved to keep groups whole"
    assert torn(torn_one, folds.assignment) == 0
    assert folds.assignment[8] == folds.assignment[0] == 0
    assert official_or_grouped_folds(data, mend=False).assignment[8] == 1


def test_named_splits_and_missing_folds_are_no_cross_validation() -> None:
    clips = [Clip(id=str(i), label="a", fold=i % 2 + 1, group=f"g{i}") for i in range(8)]
    folds = official_or_grouped_folds(dataset(clips, {1: "train", 2: "test"}), n_folds=4, seed=3)
    assert folds.source == "grouped, 4 folds, seed 3"
    assert len(folds) == 4
    clips[0] = Clip(id="0", label="a", group="g0")
    assert "grouped" in official_or_grouped_folds(dataset(clips, {1: "1", 2: "2"}), 2).source
    one = [Clip(id=str(i), label="a", fold=4, group=f"g{i}") for i in range(8)]
    assert "grouped" in official_or_grouped_folds(dataset(one, {4: "4"}), 2).source


def test_arguments_that_make_no_sense() -> None:
    clips = clips_of([(0, 0), (0, 1)])
    with pytest.raises(InputError, match="2 or more"):
        grouped_folds(clips, 1)
    with pytest.raises(InputError, match="fraction of 1"):
        grouped_split(clips, 1.0)
    with pytest.raises(InputError, match="1 or more"):
        few_shot(clips, 0)
    with pytest.raises(DatasetError, match="no label"):
        few_shot([Clip(id="a")], 1)


def test_real_sets_are_split_whole(shared_dir: Path) -> None:
    esc50 = load_dataset("esc50", shared_dir / "data/esc50-folds1-4")
    folds = official_or_grouped_folds(esc50)
    assert len(folds) == 4
    assert folds.moved == torn_groups(esc50.clips) == 2  # two recordings serve two classes each
    assert torn(list(esc50.clips), folds.assignment) == 0
    part = esc50.select(folds=[1, 2, 3])
    held = grouped_split(part.clips, 0.2, seed=0)
    for label in esc50.classes:
        mine = held[[clip.label == label for clip in part.clips]]
        assert 0.1 <= mine.mean() <= 0.3
    tinysol = load_dataset("tinysol", shared_dir / "reference/tinysol")
    mended = official_or_grouped_folds(tinysol)
    assert mended.moved == 25
    assert torn(list(tinysol.clips), mended.assignment) == 0
    orchestra = load_dataset("orchestra", shared_dir / "data/orchestra-vsco2")
    assert official_or_grouped_folds(orchestra).source == "official"
