"""A store too large to hold: spectra of all clips, all else of a declared sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from residual_audio.analysis.analysis import Options, analyse
from residual_audio.benchmarks.small_model import small_model
from residual_audio.data.registry import load_dataset
from residual_audio.extraction.extraction import extract
from residual_audio.store.reader import Store
from residual_audio.store.sampled import sampled


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    data = load_dataset("synthetic", n_clips=60, duration_s=1.0)
    out = tmp_path_factory.mktemp("run")
    kinds = "heads,attention"
    return extract(small_model(), data, out, capture=kinds, shard_size=16, device="cpu").store


def test_spectra_are_of_all_clips_and_neighbours_of_the_sample(store: Store) -> None:
    small = sampled(store, seed=3, most=40)
    assert (len(small), small.n_all, len(small.clips)) == (40, 60, 40)
    options = Options(parts=frozenset({"projected"}))
    whole, part = analyse(store, options), analyse(small, options)
    for name in ("pr", "projected_pr", "n_clips"):
        np.testing.assert_allclose(
            part.tables["heads"][name].astype(float),
            whole.tables["heads"][name].astype(float),
            rtol=1e-5,
        )
    assert not np.allclose(part.tables["heads"]["twonn"], whole.tables["heads"]["twonn"])
    assert part.statistics["n_clips"] == 60
    assert part.statistics["n_sampled"] == 40
    assert "a random sample of 40" in " ".join(part.tables["heads"].notes)


def test_rows_and_samples_stay_with_their_clips(store: Store) -> None:
    small = sampled(store, seed=3, most=40)
    ids = store.clips["id"].tolist()
    rows = [ids.index(name) for name in small.clips["id"]]
    np.testing.assert_array_equal(small.latent(), store.latent()[rows])
    name = "attention/s0.b0.attention/maps"
    at, maps = small.array(f"{name}_at"), small.array(name)
    all_at, all_maps = store.array(f"{name}_at"), store.array(name)
    assert 0 < len(maps) < len(all_maps)
    for place, one in zip(at, maps, strict=True):
        there = (all_at[:, 0] == rows[place[0]]) & (all_at[:, 1] == place[1])
        np.testing.assert_array_equal(all_maps[there][0], one)


def test_a_store_that_fits_is_left_alone(store: Store, tmp_path: Path) -> None:
    assert sampled(store) is store
