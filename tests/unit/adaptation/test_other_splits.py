"""Folds by columns of a manifest, and labels that are shuffled by group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drowned_problem import make_problem

from residual_audio.adaptation.comparison import compare
from residual_audio.adaptation.divisions import Division, folds_of, splits_of
from residual_audio.adaptation.methods.registry import find_entries, offered
from residual_audio.adaptation.methods.shuffled import exchanged_by_group
from residual_audio.adaptation.other_splits import ColumnSplit, divide
from residual_audio.adaptation.verdicts import verdicts
from residual_audio.data.registry import load_dataset
from residual_audio.errors import DatasetError, InputError


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture
def manifest(problem, tmp_path):
    """Articulations by turns, pitches that rise within a class; one clip has neither."""
    lines = ["id,articulation,pitch"]
    for i, clip in enumerate(problem.clips):
        group = int(str(clip.group)[1:].partition("-")[0])
        lines.append(f"{clip.id},{'abcdefg'[group % 7]},{'CDEFGAB'[group % 7]}{group // 7}")
        if i == 95:
            lines[-1] = f"{clip.id},,"
    path = tmp_path / "metadata.csv"
    path.write_text("\n".join(lines))
    return path


def test_whole_values_of_a_column_are_tested_together(problem, manifest):
    regrouped, folds = divide(problem, f"{manifest}#articulation", 3)
    of_value: dict[str, set[int]] = {}
    for clip, fold in zip(regrouped.clips, folds.assignment, strict=True):
        of_value.setdefault(str(clip.group), set()).add(int(fold))
    assert set("abcdefg") < set(of_value)
    assert all(len(found) == 1 for found in of_value.values())
    assert len(set(folds.assignment)) == 3
    for split in splits_of(regrouped, folds):  # choices do not see a value of the test part either
        values = [{regrouped.groups[i] for i in part} for part in (split.fit, split.held_out)]
        assert not values[0] & values[1]
    assert "1 clips without one" in folds.source


def test_blocks_are_stretches_of_every_class_and_tear_no_group(problem, manifest):
    same, folds = divide(problem, f"{manifest}#pitch:blocks", 4)
    assert same is problem
    for code in range(4):
        mine = np.flatnonzero(problem.codes == code)
        order = folds.assignment[mine[:-1]]  # pitch rises with the number of the clip
        assert (np.diff(order) >= 0).all()
        assert set(folds.assignment[mine]) == {0, 1, 2, 3}
    by_group: dict[str, set[int]] = {}
    for group, fold in zip(problem.groups, folds.assignment, strict=True):
        by_group.setdefault(group, set()).add(int(fold))
    assert all(len(found) == 1 for found in by_group.values())


def test_splits_that_make_no_sense_are_refused(problem, manifest):
    with pytest.raises(InputError, match="no split"):
        divide(problem, "articulation")
    with pytest.raises(InputError, match="neither a number nor a note"):
        divide(problem, f"{manifest}#articulation:blocks")
    with pytest.raises(DatasetError, match="no column colour"):
        divide(problem, f"{manifest}#colour")
    manifest.write_text("id,pitch\nother,C4")
    with pytest.raises(InputError, match="of 96 clips"):
        divide(problem, f"{manifest}#pitch")


def test_shuffled_labels_stay_together_in_groups_and_out_of_the_test_part(problem):
    split = next(iter(splits_of(problem, folds_of(problem.clips))))
    taken = exchanged_by_group(problem, split)
    np.testing.assert_array_equal(taken[split.test], split.test)
    assert set(taken[split.train]) <= set(split.train)
    assert (problem.codes[taken] != problem.codes)[split.train].mean() > 0.4
    labels: dict[str, set[int]] = {}
    for i in split.train:
        labels.setdefault(problem.groups[i], set()).add(int(problem.codes[taken[i]]))
    assert all(len(found) == 1 for found in labels.values())
    again = exchanged_by_group(problem, replace(split))
    np.testing.assert_array_equal(taken, again)


def test_shuffled_labels_teach_less_than_the_real_ones(problem):
    folds = folds_of(problem.clips)
    entries = find_entries(["unbounded", "unbounded-shuffled"], offered(problem))
    found = compare(problem, folds, entries, how=Division(only=("1",)))
    rows = {row["key"]: row for row in verdicts(problem, folds, found)}
    assert rows["unbounded"]["top1"] > rows["unbounded-shuffled"]["top1"] + 0.2
    assert rows["unbounded"]["always"] <= rows["unbounded"]["ever"] <= 3


@pytest.mark.parametrize(
    ("name", "place"), [("orchestra", "data/orchestra-vsco2"), ("tinysol", "reference/tinysol")]
)
def test_splits_that_a_data_set_offers_know_every_clip(shared_dir, name, place):
    data = load_dataset(name, shared_dir / place)
    assert len(data.splits) == 2
    for split in data.splits:
        asked = ColumnSplit.parse(split)
        assert len(set(asked.values(data.clips))) > 2


def test_fewer_values_than_folds_make_as_many_folds(problem, tmp_path):
    table = tmp_path / "notes.csv"
    names = [clip.id for clip in problem.clips]
    rows = [f"{name},{('pp', 'mf', 'ff')[i % 3]}" for i, name in enumerate(names)]
    table.write_text("\n".join(["id,dynamics", *rows]))
    _, folds = divide(problem, f"{table}#dynamics", 5)
    assert len(folds) == 3
    assert "3 folds" in folds.source
