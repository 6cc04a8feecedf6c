"""Engines run callables and know nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from residual_audio.engine import Where, open_engine
from residual_audio.engine.local import can_branch
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


def run(tasks, setup, work, **where) -> dict[int, object]:
    """Task number → result, or the error that it raised."""
    with open_engine(Where(**where)) as engine:
        found = list(engine.run(tasks, setup, work))
    assert len({done.number for done in found}) == len(found)
    return {d.number: d.result if d.error is None else d.error for d in found}


def test_here_in_order_with_one_setup() -> None:
    found = run([3, 1, 2], set_up, square)
    assert [result[0] for result in found.values()] == [9, 1, 4]
    assert list(found) == [0, 1, 2]
    assert [result[2] for result in found.values()] == [1, 2, 3]
    assert {result[1] for result in found.values()} == {os.getpid()}
    assert run([], set_up, square) == {}


def test_several_processes() -> None:
    tasks = list(range(6))
    found = run(tasks, partial(set_up, "x"), square, processes=2)
    assert {task: result[0] for task, result in found.items()} == {t: t * t for t in tasks}
    assert os.getpid() not in {result[1] for result in found.values()}
    # each process set up once: its calls count up
    for pid in {result[1] for result in found.values()}:
        calls = sorted(result[2] for result in found.values() if result[1] == pid)
        assert calls == list(range(1, len(calls) + 1))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_task_that_fails_is_told_and_the_rest_goes_on(processes) -> None:
    found = run(list(range(6)), set_up, fail_at_three, processes=processes)
    failed = found.pop(3)
    assert isinstance(failed, StoreError)
    assert str(failed) == "task 3 cannot be done"
    assert found == {task: task for task in (0, 1, 2, 4, 5)}


def no_set_up() -> None:
    raise StoreError("there is nothing to begin with")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_setup_that_fails_ends_it(processes) -> None:
    with pytest.raises(StoreError, match="nothing to begin with"):
        run([0, 1, 2], no_set_up, square, processes=processes)


class Noted(list):
    """Tasks that say when they are asked for."""

    asked = 0

    def __getitem__(self, number):
        self.asked += 1
        return super().__getitem__(number)


def test_tasks_are_put_together_when_a_worker_takes_them() -> None:
    tasks = Noted([0.0] * 40)
    with open_engine(Where(processes=2)) as engine:
        found = engine.run(tasks, set_up, sleep_or_die)
        next(found)
        assert tasks.asked <= 6
        found.close()


def sleep_or_die(state: dict, task: float) -> float:
    if task < 0:
        os._exit(9)
    time.sleep(task)
    return task


def test_stopping_does_not_wait_for_the_workers() -> None:
    with open_engine(Where(processes=2)) as engine:
        found = engine.run([0.0, 60.0, 60.0], set_up, sleep_or_die)
        assert next(found).result == 0.0
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
    assert run(tasks, set_up, die_once, processes=2) == dict(enumerate(range(6)))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_task_that_always_kills_its_worker_is_told_and_the_rest_goes_on() -> None:
    found = run([-1.0, 0.0, 0.0], set_up, sleep_or_die, processes=2)
    assert isinstance(found[0], EngineError)
    assert "processes died over it" in str(found[0])
    assert (found[1], found[2]) == (0.0, 0.0)


def test_bad_requests() -> None:
    with pytest.raises(InputError, match="no engine 'slurm'"):
        run([1], set_up, square, engine="slurm")
    with pytest.raises(InputError, match="for the ray engine"):
        run([1], set_up, square, address="1.2.3.4:6379")
    with pytest.raises(InputError, match=r"--gpus-each 0\.5 is for the ray engine"):
        run([1], set_up, square, gpus_each=0.5)
    with pytest.raises(InputError, match="at least 1"):
        run([1], set_up, square, processes=0)


def weigh(weights: torch.Tensor) -> float:
    return float(weights.sum())


def add(state: float, task: int) -> float:
    return state + task


def test_tensors_reach_every_process(capfd: pytest.CaptureFixture[str]) -> None:
    """Handed out in shared memory, they reached the first and ended the others."""
    found = run(list(range(6)), partial(weigh, torch.ones(4)), add, processes=3)
    assert found == {task: 4.0 + task for task in range(6)}
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(not can_branch(), reason="this system cannot branch processes off")
def test_workers_that_branch_off_find_what_was_loaded_for_them() -> None:
    """In a program of its own: the process they branch off is begun once a program."""
    code = (
        "import operator; from functools import partial\n"
        "from residual_audio.engine import Where, open_engine\n"
        "from residual_audio.engine.local import get_ready\n"
        "get_ready(['sched'])\n"
        "loaded = partial(eval, \"__import__('sys').modules\")\n"
        "with open_engine(Where(processes=2, ready=True)) as engine:\n"
        "    found = engine.run(['sched', 'tabnanny'], loaded, operator.contains)\n"
        "    print(sorted((done.number, done.result) for done in found))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[(0, True), (1, False)]", done.stderr
