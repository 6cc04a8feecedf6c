"""Ablation where there is no text side: class centroids of other clips are the answers."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_model import tiny_model

from residual_audio.ablation.ablation import AblationSettings, ablate
from residual_audio.ablation.interventions import Way, interventions_on, take_out
from residual_audio.data.registry import load_dataset
from residual_audio.extraction.extraction import extract
from residual_audio.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    sounds = load_dataset("synthetic", n_clips=24, duration_s=1.0, classes="siren,drum,rain")
    folder, kinds = tmp_path_factory.mktemp("audio-only"), "heads,direct"
    return extract(tiny_model(text=False), sounds, folder, capture=kinds, device="cpu").store


def test_taking_out_a_head_moves_answers(store: Store) -> None:
    heads = [str(head) for site in store.attention_sites for head in site.heads]
    effects = take_out(interventions_on(store), heads, Way())
    for measure in ("margin", "loss", "rank", "correct"):
        assert np.isfinite(effects.delta(measure)).all(), measure
    assert np.abs(effects.importance("margin")).max() > 0


def test_the_whole_step(store: Store) -> None:
    tables = ablate(interventions_on(store), AblationSettings(("head",), curves=False))
    assert tables
    assert all(len(table) for table in tables)
