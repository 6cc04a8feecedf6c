"""Prefetching: in order, bounded, errors in place, and it stops when told."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from residual_audio.audio.prefetch import prefetch
from residual_audio.errors import AudioError, InputError


@pytest.fixture(autouse=True)
def before(monkeypatch):
    """Threads of other tests are not ours to judge."""
    monkeypatch.setattr(sys.modules[__name__], "BEFORE", set(threading.enumerate()))


BEFORE: set[threading.Thread] = set()


def living() -> list[str]:
    ours = set(threading.enumerate()) - BEFORE
    return [t.name for t in ours if t.name.startswith("prefetch-")]


def wait_for_end(limit_s: float = 1.0) -> None:
    end = time.monotonic() + limit_s
    while living() and time.monotonic() < end:
        time.sleep(0.005)
    assert living() == []


@pytest.mark.parametrize("n_threads", [0, 1, 4])
def test_results_come_in_order(n_threads):
    def work(i: int) -> int:
        time.sleep(0.002 * (i % 3))
        return i * i

    got = list(prefetch(range(40), work, n_threads=n_threads, depth=5))
    assert [f.item for f in got] == list(range(40))
    assert [f.value for f in got] == [i * i for i in range(40)]
    assert all(f.error is None for f in got)
    wait_for_end()


@pytest.mark.parametrize("n_threads", [0, 2])
def test_an_error_takes_the_place_of_its_result(n_threads):
    def work(name: str) -> str:
        if name == "bad":
            raise AudioError("'bad' is cut short")
        return name.upper()

    a, bad, b = prefetch(["a", "bad", "b"], work, n_threads=n_threads)
    assert (a.value, b.value) == ("A", "B")
    assert bad.value is None
    assert isinstance(bad.error, AudioError)
    assert "cut short" in str(bad.error)


def test_it_works_ahead_but_never_further_than_depth():
    begun: list[int] = []
    stream = prefetch(range(100), lambda i: begun.append(i) or i, n_threads=3, depth=4)
    assert next(stream).item == 0
    time.sleep(0.1)
    assert len(begun) == 4
    next(stream)
    time.sleep(0.1)
    assert len(begun) == 5
    stream.close()


def test_threads_work_at_the_same_time():
    together = threading.Barrier(3, timeout=5)
    assert all(f.error is None for f in prefetch(range(3), lambda _: together.wait(), n_threads=3))


def test_closing_drops_what_has_not_begun_and_ends_the_threads():
    begun: list[int] = []

    def work(i: int) -> int:
        begun.append(i)
        time.sleep(0.05)
        return i

    stream = prefetch(iter(range(1000)), work, n_threads=2, depth=50)
    next(stream)
    stream.close()
    wait_for_end()
    assert len(begun) < 10


def test_an_interrupt_in_the_loop_ends_the_threads():
    def consume() -> None:
        for fetched in prefetch(range(1000), lambda i: i, n_threads=2, depth=10):
            if fetched.item == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    wait_for_end()


def test_an_error_of_the_items_reaches_the_caller():
    def items():
        yield 1
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(prefetch(items(), lambda i: i, n_threads=1, depth=1))
    wait_for_end()


def test_no_items_and_nonsense():
    assert list(prefetch([], lambda i: i)) == []
    with pytest.raises(InputError):
        prefetch([1], lambda i: i, n_threads=-1)
    with pytest.raises(InputError):
        prefetch([1], lambda i: i, depth=0)


def test_a_program_that_ends_lets_its_threads_finish_what_they_are_on():
    """Ended inside a C++ library, they would abort the process."""
    program = """
import threading, time
from residual_audio.audio.prefetch import prefetch

begun = threading.Event()

def work(i):
    begun.set()
    time.sleep(0.3)
    print(f"finished {i}", flush=True)

stream = prefetch(range(100), work, n_threads=1, depth=50)
threading.Thread(target=next, args=(stream,), daemon=True).start()
begun.wait()
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "finished 0\n"  # what had not begun is dropped
