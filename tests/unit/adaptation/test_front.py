"""References: what a comparison says about them, methods that keep them, and the front."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_run import small_dataset, small_model

from residual_audio.adaptation import trade as trade_of
from residual_audio.adaptation.adapted import AdaptSettings, adapt
from residual_audio.adaptation.comparison import compare
from residual_audio.adaptation.divisions import Division, folds_of, splits_of
from residual_audio.adaptation.front import front
from residual_audio.adaptation.front_edits import (
    blended,
    bounded,
    families,
    held,
    low_rank,
    mapped,
)
from residual_audio.adaptation.methods.elsewhere_embedding import by_gains
from residual_audio.adaptation.methods.low_rank import SETTINGS, LoRA
from residual_audio.adaptation.methods.registry import Entry
from residual_audio.adaptation.methods.residual import NETWORK, ResiDual
from residual_audio.adaptation.methods.ridge import Ridge
from residual_audio.adaptation.problem import problem_of
from residual_audio.adaptation.references import cost_there, elsewhere, references_of
from residual_audio.errors import InputError
from residual_audio.extraction.extraction import extract
from residual_audio.passes.kept import load_passes
from residual_audio.passes.loop import Hearing
from residual_audio.report.figures import draw_all
from residual_audio.report.write import write_tables
from residual_audio.reweight.cached import Streams
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
    methods = ("residual", "unbounded", "kept")
    asked = AdaptSettings(
        ("1", "2", "3"), methods=methods, keep=keep, max_loss=0.2, retention=False
    )
    found = adapt(store, asked)
    rows = {row["key"]: row for row in found.tables[0].rows()}
    for key in methods:
        row = rows[key]
        assert {"moved", "units_moved", "energy", "stability", "capped", "lost"} <= set(row)
    # a fold in which nothing was learned stays as it was
    assert 0 < rows["unbounded"]["moved"] <= rows["unbounded"]["parameters"]
    assert rows["residual"]["negative"] == 0
    assert rows["kept"]["lost"] <= max(rows["unbounded"]["lost"], 0.2) + 1e-9


def test_the_identity_costs_nothing_and_runs_of_other_models_are_refused(store):
    problem = problem_of(store)
    (place,) = elsewhere((str(store.folder),), problem)
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    gains = ResiDual(unbounded=True).fit(problem, split).gains
    assert cost_there(place, by_gains(blend(gains, 0.0)), place.held_out).lost == 0
    other = dict(problem.about) | {"model": {"name": "other", "sha256": "0" * 64}}
    with pytest.raises(InputError, match="another model"):
        references_of((str(store.folder),), replace(problem, about=other))
    with pytest.raises(InputError, match="direct path"):
        ResiDual(path="network", keep=("run",))
    for ignored in ({"penalty": "group"}, {"unbounded": True}, {"path": "network"}):
        with pytest.raises(InputError, match="few alone"):
            ResiDual(share=0.1, **ignored)
    for kept in ((), ("run",)):
        with pytest.raises(InputError, match="no share"):
            ResiDual(share=0.0, keep=kept)


def test_edits_that_run_the_encoder_and_maps_of_embeddings_are_on_the_front(store):
    model, dataset = small_model(), small_dataset()
    ids = [str(i) for i in store.clips["id"]]
    passes = load_passes(model, dataset, ids, Hearing(store.run_info.long, batch_size=16))
    problem = replace(problem_of(store), streams=Streams(passes))
    (place,) = elsewhere((str(store.folder),), problem)
    place = replace(place, problem=replace(place.problem, streams=problem.streams))
    last = problem.stages[-1]
    settings = replace(NETWORK, epochs=1, strength=0.01)  # as it is: no rule may stay at 1
    inside = ResiDual(stages=(last,), path="network", settings=settings)
    brief = LoRA(budget=200, settings=replace(SETTINGS, epochs=1))
    among = [blended("gains inside", inside), low_rank(brief), mapped(Ridge())]
    folds = folds_of(problem.clips, 3)
    how = Division(only=(folds.names[0],))
    points = front(problem, folds, [place], how=how, among=among)
    assert [p["family"] for p in points[::5]] == ["blend of gains inside", "LoRA", "ridge to texts"]
    for i in range(0, 15, 5):
        shifts = [p["shift"] for p in points[i : i + 5]]
        assert shifts == sorted(shifts)  # further from the identity with every step
        assert shifts[-1] > 0
    assert np.isfinite([p["lost"] for p in points]).all()
    assert np.isnan(points[-1]["energy"])
    # and every row of the table says what it costs there
    entries = [
        Entry("in", "inside", "network", inside),
        Entry("lora", "LoRA", "baseline", brief),
        Entry("ridge", "ridge", "baseline", Ridge()),
    ]
    outcomes = compare(problem, folds, entries, how=how, references=[place])
    for outcome in outcomes:
        (cost,) = outcome.costs[folds.names[0]]
        assert cost.n == len(place.problem)
    # what cannot be heard there is not told, and what need not be is
    deaf = replace(place, problem=replace(place.problem, streams=None))
    outcomes = compare(problem, folds, entries[1:], how=how, references=[deaf])
    assert [len(outcome.costs[folds.names[0]]) for outcome in outcomes] == [0, 1]
    # all of the edit is what the method itself is worth
    split = next(splits_of(problem, folds, how))
    right = (Ridge().fit(problem, split).scores.argmax(1) == problem.codes[split.test]).mean()
    assert points[-1]["top1"] == pytest.approx(right)
    assert {f.name for f in families(("run",), network=True)} > {f.name for f in families(("run",))}


def test_the_front_is_followed_and_drawn(store, tmp_path):
    problem = problem_of(store)
    keep = (f"{store.folder}#2,3",)
    folds = folds_of(problem.clips, 3)
    how = Division(only=(folds.names[0],))
    places = elsewhere(keep, problem)
    among = [held("references held", ResiDual(keep=keep)), bounded()]
    points = front(problem, folds, places, how=how, among=among)
    assert {point["family"] for point in points} == {"references held", "largest gain"}
    settings = [p["setting"] for p in points if p["family"] == "references held"]
    assert settings == sorted(settings, reverse=True)
    within = [p for p in points if p["family"] == "largest gain"]
    assert all(p["distance"] <= p["setting"] - 1 or p["setting"] < 2 for p in within)
    assert all(0 <= p["top1"] <= 1 and np.isfinite(p["lost"]) for p in points)
    write_tables(tmp_path, [from_rows("front", points, "front")])
    assert {path.stem for path in draw_all(tmp_path, {"front"})} == {"front"}


def test_the_trade_shows_every_share_under_every_ridge(store, tmp_path, monkeypatch):
    monkeypatch.setattr(trade_of, "SHARES", (0.1, 1.0))
    monkeypatch.setattr(trade_of, "RIDGES", (0.5, 5.0))
    problem = problem_of(store)
    points = trade_of.trade(problem, folds_of(problem.clips, 2))
    assert [(p["share"], p["ridge"]) for p in points] == [(0.1, 0.5), (0.1, 5.0), (1, 0.5), (1, 5)]
    few, _, weak, strong = points
    assert few["units_moved"] < weak["units_moved"]
    assert strong["energy"] < weak["energy"]
    assert all(point["n"] == len(problem) for point in points)
    narrow = trade_of.trade(problem, folds_of(problem.clips, 2), (0.9, 1.1))
    assert narrow[2]["energy"] < weak["energy"]
    write_tables(tmp_path, [from_rows("trade", points, "")])
    assert draw_all(tmp_path, {"trade"})
