"""Splits that a data set offers, as far as a run can use them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from residual_audio.adaptation.adapted import AdaptSettings, adapt
from residual_audio.errors import DatasetError
from residual_audio.surface.fitted import harder_splits
from residual_audio.surface.runs import Run


def run_of(store, dataset, *splits):
    return Run(store.folder, dataset=replace(dataset, splits=splits))


@pytest.fixture
def table(store, tmp_path):
    path = tmp_path / "notes.csv"
    rows = [f"{name},{i % 3}" for i, name in enumerate(store.clips["id"])]
    path.write_text("\n".join(["id,way", *rows]))
    return path


def test_splits_whose_table_knows_every_clip_are_used(store, dataset, table):
    assert harder_splits(run_of(store, dataset, f"{table}#way")) == (f"{table}#way",)


def test_what_a_store_tells_alone_does_not_depend_on_tables(store, dataset, table):
    gone = table.with_name("gone.csv")
    assert harder_splits(run_of(store, dataset, f"{gone}#way")) == ()
    table.write_text("id,way\nanother,1\n")
    assert harder_splits(run_of(store, dataset, f"{table}#way")) == ()


def test_a_bad_split_is_refused_before_anything_is_fitted(store, table):
    class Never:
        def step(self, *_):
            raise AssertionError("it began")

        advance = step

    asked = AdaptSettings(methods=("residual",), harder=(f"{table}#colour",))
    with pytest.raises(DatasetError, match="colour"):
        adapt(store, asked, progress=Never())
