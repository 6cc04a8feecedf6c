"""Engines run callables and know nothing else."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from residual_audio import engine
from residual_audio.errors import EngineError, InputError, StoreError


def set_up(log: str | None = None) -> dict:
    return {"pid": os.getpid(), "calls": 0}


def square(state: dict, task: int) -> tuple[int, int, int]:
    state["calls"] += 1
    return task * task, state["pid"], state["calls"]


def fail_at_three(state: dict, task: int) -> int:
    if task == 3:
        raise StoreError("task 3 cannot be done")
    return task


def test_here_in_order_with_one_setup() -> None:
    found = list(engine.run([3, 1, 2], set_up, square))
    assert [(task, result[0]) for task, result in found] == [(3, 9), (1, 1), (2, 4)]
    assert [result[2] for _, result in found] == [1, 2, 3]
    assert {result[1] for _, result in found} == {os.getpid()}
    assert list(engine.run([], set_up, square)) == []


def test_several_processes() -> None:
    tasks = list(range(6))
    found = dict(engine.run(tasks, partial(set_up, "x"), square, processes=2))
    assert {task: result[0] for task, result in found.items()} == {t: t * t for t in tasks}
    assert os.getpid() not in {result[1] for result in found.values()}
    # each process set up once: its calls count up
    for pid in {result[1] for result in found.values()}:
        calls = sorted(result[2] for result in found.values() if result[1] == pid)
        assert calls == list(range(1, len(calls) + 1))
    with pytest.raises(StoreError, match="task 3"):
        list(engine.run(tasks, set_up, fail_at_three, processes=2))


def sleep_or_die(state: dict, task: float) -> float:
    if task < 0:
        os._exit(9)
    time.sleep(task)
    return task


def test_stopping_does_not_wait_for_the_workers() -> None:
    found = engine.run([0.0, 60.0, 60.0], set_up, sleep_or_die, processes=2)
    assert next(found) == (0.0, 0.0)
    start = time.monotonic()
    found.close()
    assert time.monotonic() - start < 10


def die_once(state: dict, task: tuple[str, int]) -> int:
    mark, number = task
    if number % 2 and not os.path.exists(f"{mark}{number}"):
        open(f"{mark}{number}", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_workers_that_die_are_replaced_and_their_tasks_done_again(tmp_path: Path) -> None:
    tasks = [(str(tmp_path / "died-"), i) for i in range(6)]
    found = dict(engine.run(tasks, set_up, die_once, processes=2))
    assert found == {task: task[1] for task in tasks}
    assert len(list(tmp_path.iterdir())) == 3


def test_a_task_that_always_kills_its_worker_is_an_error() -> None:
    with pytest.raises(EngineError, match="worker processes died"):
        list(engine.run([-1.0, 0.0, 0.0], set_up, sleep_or_die, processes=2))


def test_bad_requests() -> None:
    with pytest.raises(InputError, match="no engine 'slurm'"):
        engine.run([1], set_up, square, engine="slurm")
    with pytest.raises(InputError, match="--engine ray"):
        engine.run([1], set_up, square, address="1.2.3.4:6379")
    with pytest.raises(InputError, match="at least 1"):
        engine.run([1], set_up, square, processes=0)
