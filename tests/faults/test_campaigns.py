"""The quick forms of the campaigns that `residual-audio bench faults` runs at length."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from held import assert_held

from residual_audio.benchmarks.faults.bad_sound import mutate_sound
from residual_audio.benchmarks.faults.campaigns import CAMPAIGNS, chosen_campaigns, run_campaigns
from residual_audio.benchmarks.faults.damage import damage_files
from residual_audio.benchmarks.faults.hostile_models import hostile_models
from residual_audio.benchmarks.faults.hostile_text import hostile_text
from residual_audio.benchmarks.faults.outcome import CampaignSettings
from residual_audio.benchmarks.faults.read_back import KINDS
from residual_audio.benchmarks.faults.same_answer import nothing_left, same_answer
from residual_audio.errors import InputError


def test_damage_is_found() -> None:
    kinds = [kind for kind in KINDS if kind.name in ("store", "gains", "model", "results")]
    assert_held(damage_files(flips=30, cuts=8, kinds=kinds))


def test_damage_of_runs_and_of_training_is_found() -> None:
    kinds = [kind for kind in KINDS if kind.name in ("tables", "training", "digests of data")]
    assert_held(damage_files(flips=40, cuts=10, kinds=kinds))


def test_a_reader_that_believes_everything_would_be_found_out() -> None:
    """The campaign itself can fail."""
    gains = next(kind for kind in KINDS if kind.name == "gains")
    blind = replace(gains, read=lambda out: (out / "small.safetensors").read_bytes())
    found = damage_files(flips=6, cuts=0, kinds=[blind])[0]
    assert found.held < found.tried
    assert "read as something else" in found.broken[0]


def test_bad_sound() -> None:
    assert_held(mutate_sound(n=150))


def test_hostile_models() -> None:
    assert_held(hostile_models(most=3))


def test_hostile_text() -> None:
    assert_held(hostile_text(most=1))


def test_the_same_answer_to_the_bit() -> None:
    assert_held(same_answer(CampaignSettings(quick=True)))


def test_embeddings_leave_nothing() -> None:
    assert_held(nothing_left(embeddings=120))


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    asked = CampaignSettings(keep=tmp_path)
    cases = ["held", "broken", "not reached"]
    first = asked.campaign("floods: one", "nothing is wet")
    first.attempt(lambda: None)
    first.attempt(lambda: "wet")
    first._save()
    again = asked.campaign("floods: one", "nothing is wet")
    tried: list[str] = []
    for case in cases:
        again.attempt(lambda case=case: tried.append(case))  # type: ignore[misc, func-returns-value]
    assert tried == ["not reached"]
    assert (again.end().tried, again.held, again.broken) == (3, 2, ["wet"])
    kept = json.loads((tmp_path / "floods-one.json").read_text())
    assert kept["complete"]
    assert kept["command"].endswith("--campaign floods --keep FOLDER")
    assert asked.campaign("floods: one", "nothing is wet").complete
    with pytest.raises(InputError, match="other settings"):
        CampaignSettings(keep=tmp_path, seed=1).campaign("floods: one", "nothing is wet")


def test_campaigns_are_chosen_alone_or_as_a_group() -> None:
    assert chosen_campaigns(["crash:run", "kill"]) == ["crash:run", "kill"]
    assert "damage:atlas-data" in chosen_campaigns(["damage"])
    assert chosen_campaigns([]) == list(CAMPAIGNS)


def test_unknown_campaigns_are_named() -> None:
    with pytest.raises(InputError, match="no campaign 'floods'"):
        run_campaigns(["floods"])
