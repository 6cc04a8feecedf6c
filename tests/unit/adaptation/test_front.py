"""References: what a comparison says about them, methods that keep them, and the front."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_run import small_dataset, small_model

from residual_audio.adaptation.adapted import AdaptSettings, adapt
from residual_audio.adaptation.divisions import Division, folds_of, splits_of
from residual_audio.adaptation.front import bounded, front, held
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.problem import problem_of
from residual_audio.adaptation.references import reference_costs, references_of
from residual_audio.errors import InputError
from residual_audio.extraction.extraction import extract
from residual_audio.report.figures import draw_all
from residual_audio.report.write import write_tables
from residual_audio.reweight.gains import blend
from residual_audio.store import Store
from residual_audio.table import from_rows


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    folder = tmp_path_factory.mktemp("run")
    model, dataset = small_model(), small_dataset()
    return extract(model, dataset, folder, capture="heads,direct", shard_size=16).store


def test_rows_say_what_moved_and_what_it_costs(store):
    keep = (f"{store.folder}#1,2",)
    methods = ("heads-0123", "unbounded", "kept")
    found = adapt(store, AdaptSettings(methods=methods, keep=keep, max_loss=0.2, retention=False))
    rows = {row["key"]: row for row in found.tables[0].rows()}
    for key in methods:
        row = rows[key]
        assert {"moved", "units_moved", "energy", "stability", "capped", "lost"} <= set(row)
    # a fold in which nothing was learned stays as it was
    assert 0 < rows["unbounded"]["moved"] <= rows["unbounded"]["parameters"]
    assert rows["heads-0123"]["negative"] == 0
    assert rows["kept"]["lost"] <= max(rows["unbounded"]["lost"], 0.2) + 1e-9


def test_the_identity_costs_nothing_and_runs_of_other_models_are_refused(store):
    problem = problem_of(store)
    references = references_of((str(store.folder),), problem)
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    gains = ResiDual(unbounded=True).fit(problem, split).gains
    (cost,) = reference_costs(blend(gains, 0.0), references, problem)
    assert cost.lost == 0
    other = dict(problem.about) | {"model": {"name": "other", "sha256": "0" * 64}}
    with pytest.raises(InputError, match="another model"):
        references_of((str(store.folder),), replace(problem, about=other))
    with pytest.raises(InputError, match="direct path"):
        ResiDual(path="network", keep=("run",))


def test_the_front_is_followed_and_drawn(store, tmp_path):
    problem = problem_of(store)
    keep = (f"{store.folder}#2,3",)
    folds = folds_of(problem.clips, 3)
    how = Division(only=(folds.names[0],))
    points = front(problem, folds, keep, how=how, among=[held(keep), bounded()])
    assert {point["family"] for point in points} == {"references held", "largest gain"}
    settings = [p["setting"] for p in points if p["family"] == "references held"]
    assert settings == sorted(settings, reverse=True)
    within = [p for p in points if p["family"] == "largest gain"]
    assert all(p["distance"] <= p["setting"] - 1 or p["setting"] < 2 for p in within)
    assert all(0 <= p["top1"] <= 1 and np.isfinite(p["lost"]) for p in points)
    write_tables(tmp_path, [from_rows("front", points, "front")])
    assert {path.stem for path in draw_all(tmp_path, {"front"})} == {"front"}
