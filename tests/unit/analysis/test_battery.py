"""The battery on all cores, and its samples beyond many clips."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from residual_audio.analysis import battery
from residual_audio.analysis.battery import measure
from residual_audio.engine import jobs as cores
from residual_audio.errors import InputError
from residual_audio.metrics.dimension import gride, mle, two_nn
from residual_audio.metrics.neighbours import neighbour_distances
from residual_audio.metrics.spectra import eigenspectrum


def clouds(n: int = 120, heads: int = 9) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(heads, n, 5)).astype(np.float32)


def test_work_is_done_on_all_cores_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "available_cores", lambda: 3)
    meeting = threading.Barrier(3, timeout=20)

    def work(i: int) -> int:
        if i < 3:
            meeting.wait()  # only reached when three run at once
        return i * i

    assert cores.on_cores(work, range(20)) == [i * i for i in range(20)]


def test_cores_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cores.available_cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert cores.available_cores() >= 1


def test_columns_are_those_of_the_metrics() -> None:
    x = clouds()
    found = measure(x)
    near = neighbour_distances(x, 20)
    np.testing.assert_array_equal(found.spectra, eigenspectrum(x))
    np.testing.assert_allclose(found.columns["twonn"], two_nn(near).value, rtol=1e-12)
    np.testing.assert_allclose(found.columns["mle"], mle(near).value, rtol=1e-12)
    np.testing.assert_allclose(found.columns["gride_8"], gride(near, 8).value, rtol=1e-10)
    assert "gride_16" not in found.columns
    assert set(found.columns["reason"]) == {""}
    assert "twonn" not in measure(x, nonlinear=False).columns


def test_errors_come_out_of_the_threads() -> None:
    x = clouds()
    x[4, 7, 0] = np.inf
    with pytest.raises(InputError, match=r"head h4, clip 'c7'"):
        measure(x, units=[f"h{i}" for i in range(9)], clips=[f"c{i}" for i in range(120)])


def test_many_clips_are_sampled_and_the_spread_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(battery, "MAX_SEARCHED", 400)
    x = clouds(1000, 3)
    found = measure(x, seed=1)
    assert found.sampled is not None
    assert len(found.sampled) == 400
    assert (np.isfinite(found.log_ratio).sum(axis=1) == 400).all()
    np.testing.assert_array_equal(found.spectra, eigenspectrum(x))  # spectra use every clip
    expected = two_nn(neighbour_distances(x[:, found.sampled])).value
    np.testing.assert_allclose(found.columns["twonn"], expected)
    assert (found.columns["twonn_spread"] > 0).all()
    assert (found.columns["twonn_spread"] < 1.5).all()
    np.testing.assert_array_equal(measure(x, seed=1).sampled, found.sampled)
