"""A model as a scikit-learn transformer."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile
from one_stage import save_one_stage
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import residual_audio as ra
from residual_audio.errors import InputError


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_one_stage(tmp_path_factory.mktemp("model") / "ast", "ast"))


def test_clones_pickles_and_stands_in_a_pipeline(small: str, tmp_path: Path) -> None:
    waves = np.random.default_rng(0).normal(size=(4, 32_000)).astype(np.float32) / 10
    files = [tmp_path / f"{i}.wav" for i in range(4)]
    for file, wave in zip(files, waves, strict=True):
        soundfile.write(file, wave, 32_000, subtype="FLOAT")
    embedder = ra.ClapEmbedder(small, sample_rate=32_000)
    want = ra.load_model(small).embed_audio(files)
    for given in (files, np.array([str(f) for f in files]), waves, list(waves)):
        np.testing.assert_allclose(clone(embedder).fit_transform(given), want, atol=1e-6)
    again = pickle.loads(pickle.dumps(embedder.fit(files)))  # noqa: S301, made here
    np.testing.assert_allclose(again.transform(files), want, atol=1e-6)
    assert len(pickle.dumps(embedder)) < 2000
    assert list(embedder.get_feature_names_out()[:2]) == ["clap0", "clap1"]
    answers = make_pipeline(embedder, LogisticRegression()).fit(files, [0, 1, 0, 1]).predict(files)
    assert set(answers) <= {0, 1}
    short = [waves[0], waves[1][:16_000]]  # of different lengths
    assert ra.ClapEmbedder(small, sample_rate=32_000).fit_transform(short).shape == (2, 24)
    with pytest.raises(InputError, match="sample_rate="):
        ra.ClapEmbedder(small).fit_transform(waves)


def test_scikit_learns_own_checks(small: str) -> None:
    found = check_estimator(ra.ClapEmbedder(small, sample_rate=32_000), on_fail=None, on_skip=None)
    failed = {r["check_name"]: repr(r["exception"])[:300] for r in found if r["status"] == "failed"}
    # what runs together is cut by the number of cores, which moves the last bit of float32
    rounding = {"check_methods_sample_order_invariance", "check_methods_subset_invariance"}
    assert not set(failed) - rounding, failed  # rows of an array are waveforms
    assert sum(r["status"] == "passed" for r in found) > 40
