"""Clips over cores: the same answer as in one call, in order, and no gradient lost."""

from __future__ import annotations

import threading

import pytest
import torch

from residual_audio.engine import cores
from residual_audio.engine.cores import on_single_cores, stream_clips


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def stream(work, *sizes: int):
    """`work` on batches of so many clips, which are numbered through."""
    clips = torch.arange(float(sum(sizes))).view(-1, 1)
    batches = clips.split(list(sizes))
    with torch.inference_mode():
        return stream_clips(work, ((batch, batch[:, 0].tolist()) for batch in batches))


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (8,), (7, 1, 4), (1, 8, 8), (9, 2, 2, 1)])
def test_parts_come_back_in_order_with_what_they_belong_to(sizes, two_threads) -> None:
    found = list(stream(lambda clips, owners: (2 * clips, owners), *sizes))
    total = sum(sizes)
    assert torch.equal(torch.cat([clips for clips, _ in found])[:, 0], 2.0 * torch.arange(total))
    assert [owner for _, owners in found for owner in owners] == list(range(total))
    assert max(len(clips) for clips, _ in found) <= cores.CLIPS_A_JOB


def test_how_a_batch_is_cut_does_not_depend_on_its_neighbours(two_threads) -> None:
    alone = [list(stream(lambda clips, _: len(clips), n)) for n in (7, 3, 1, 8)]
    together = list(stream(lambda clips, _: len(clips), 7, 3, 1, 8))
    assert together == [size for sizes in alone for size in sizes]


def test_every_part_has_one_core(two_threads) -> None:
    threads, sizes = set(), []

    def work(clips: torch.Tensor, _) -> None:
        threads.add(threading.current_thread().name)
        sizes.append(torch.get_num_threads())
        assert torch.is_inference_mode_enabled()

    list(stream(work, 16))
    assert sizes == [1] * 4
    assert threading.current_thread().name not in threads
    assert torch.get_num_threads() == 2


def test_batches_are_asked_for_only_when_cores_need_them(two_threads) -> None:
    asked = []

    def batches():
        for i in range(100):
            asked.append(i)
            yield torch.zeros(8, 1), range(8)

    with torch.inference_mode():
        found = stream_clips(lambda clips, _: None, batches())
    assert asked == []
    next(found)
    assert len(asked) <= 4
    found.close()
    assert len(asked) <= 4


def test_with_gradients_the_batch_stays_whole(two_threads) -> None:
    weight = torch.ones(3, requires_grad=True)
    batches = [(torch.ones(8, 3), range(8))]
    (found,) = stream_clips(lambda clips, _: clips * weight, batches)
    found.sum().backward()
    assert weight.grad.tolist() == [8, 8, 8]


def test_a_part_that_fails_ends_the_stream_with_its_error(two_threads) -> None:
    def work(clips: torch.Tensor, owners) -> int:
        if 9 in owners:
            raise ValueError("clip 9")
        return len(clips)

    found = stream(work, 8, 8, 8)
    assert [next(found), next(found)] == [4, 4]
    with pytest.raises(ValueError, match="clip 9"):
        next(found)
    assert list(stream(lambda clips, _: len(clips), 4)) == [2, 2]


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
