"""Clips over cores: the same answer as in one call, in order, and no gradient lost."""

from __future__ import annotations

import threading

import pytest
import torch

from residual_audio.engine import cores
from residual_audio.engine.cores import map_clips, on_single_cores


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("n_clips", [1, 2, 3, 7, 8])
def test_parts_come_back_in_order_and_whole(n_clips: int, two_threads) -> None:
    batch = torch.arange(3.0 * n_clips).view(n_clips, 3)
    with torch.inference_mode():
        found = map_clips(lambda part: 2 * part, batch)
    assert torch.equal(torch.cat(found), 2 * batch)
    assert (len(found) > 1) == (n_clips > 1)


def test_every_part_has_one_core(two_threads) -> None:
    threads, sizes = set(), []

    def work(part: torch.Tensor) -> None:
        threads.add(threading.current_thread().name)
        sizes.append(torch.get_num_threads())

    with torch.inference_mode():
        map_clips(work, torch.zeros(16, 1))
    assert sizes == [1] * 4
    assert threading.current_thread().name not in threads
    assert torch.get_num_threads() == 2


def test_with_gradients_the_batch_stays_whole(two_threads) -> None:
    weight = torch.ones(3, requires_grad=True)
    (found,) = map_clips(lambda part: part * weight, torch.ones(8, 3))
    found.sum().backward()
    assert weight.grad.tolist() == [8, 8, 8]


def test_a_failing_part_is_heard_of(two_threads) -> None:
    def work(jobs) -> None:
        for job in jobs:
            if job == 2:
                raise ValueError("job 2")

    with pytest.raises(ValueError, match="job 2"):
        on_single_cores(work, 4)


def test_ctrl_c_while_threads_begin_leaves_none_waiting(monkeypatch, two_threads) -> None:
    class Interrupted(threading.Barrier):
        def wait(self, timeout: float | None = None) -> int:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            return super().wait(timeout)

    before = set(threading.enumerate())
    monkeypatch.setattr(cores, "_pool", None)
    with monkeypatch.context() as patched:
        patched.setattr(cores.threading, "Barrier", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            on_single_cores(list, 2)
    assert torch.get_num_threads() == 2
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()
    done: list[int] = []
    on_single_cores(done.extend, 4)
    assert sorted(done) == [0, 1, 2, 3]
