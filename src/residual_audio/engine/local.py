"""This process, or several on this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from residual_audio.engine.tasks import TRIES, Setup, TaskDone, Where, Work, given_up
from residual_audio.errors import EngineError

_IN_FLIGHT = 2
"""Tasks a process has: the one it is at, and the next."""

_BRANCH = "forkserver"

_job: list[Any] = []
_state: list[Any] = []


def can_branch() -> bool:
    return _BRANCH in multiprocessing.get_all_start_methods()


def get_ready(modules: Sequence[str]) -> None:
    """Begin to load modules in a process apart, beside whatever is done here meanwhile; workers
    `Where.ready` branch off it. It ends with this program."""
    if can_branch():
        from multiprocessing import forkserver

        forkserver.set_forkserver_preload(list(modules))
        forkserver.ensure_running()


class LocalEngine:
    """In order in this process; as they finish in several, which are replaced when they die."""

    gpus_each = None

    def __init__(self, where: Where) -> None:
        self._processes = where.processes
        self._start = _BRANCH if where.ready and can_branch() else "spawn"

    def run(self, tasks: Sequence[object], setup: Setup, work: Work) -> Iterator[TaskDone]:
        processes = min(self._processes, len(tasks))
        if processes > 1:
            yield from _Processes(tasks, setup, work, self._start).run(processes)
        elif tasks:
            state = setup()
            for number in range(len(tasks)):
                yield _here(number, state, tasks[number], work)


def _here(number: int, state: object, task: object, work: Work) -> TaskDone:
    try:
        return TaskDone(number, work(state, task))
    except Exception as error:
        return TaskDone(number, error=error)


class _SetupError(Exception):
    """Of a worker that could not begin; its argument is the error."""


class _Processes:
    """Tasks in several processes; whoever dies over one is found by doing it alone."""

    def __init__(self, tasks: Sequence[object], setup: Setup, work: Work, start: str) -> None:
        self._tasks, self._setup, self._work = tasks, setup, work
        self._context = multiprocessing.get_context(start)
        self._blamed: Counter[int] = Counter()
        """Times that processes died while a task was with them; one of several is guilty."""
        self._with_them: set[int] = set()

    def run(self, processes: int) -> Iterator[TaskDone]:
        left = deque(range(len(self._tasks)))
        while left:
            suspect = next((n for n in left if self._blamed[n] >= TRIES - 1), None)
            if suspect is not None:
                left.remove(suspect)
                yield from self._alone(suspect)
                continue
            try:
                yield from self._pool(left, min(processes, len(left)))
            except BrokenProcessPool:
                self._blamed.update(self._with_them)
                left.extendleft(sorted(self._with_them, reverse=True))

    def _alone(self, number: int) -> Iterator[TaskDone]:
        try:
            yield from self._pool(deque([number]), 1)
        except BrokenProcessPool:
            yield TaskDone(number, error=EngineError(given_up("processes")))

    def _pool(self, left: deque[int], processes: int) -> Iterator[TaskDone]:
        """Takes numbers from `left`, in processes that end with it; one that dies ends it."""
        pool = ProcessPoolExecutor(
            processes,
            # never a fork of this process: it would copy the locks of its threads and hang
            mp_context=self._context,
            initializer=_begin,
            # as bytes: what they import may take longer than a parent lives; and by value: a tensor
            # in shared memory can be taken by one worker alone
            initargs=(
                max(1, (os.cpu_count() or 1) // processes),
                pickle.dumps((self._setup, self._work)),
            ),
        )
        others = set(multiprocessing.active_children())
        self._with_them = set()
        waiting: dict[Future[Any], int] = {}
        try:
            while left or waiting:
                while left and len(waiting) < _IN_FLIGHT * processes:
                    number = left.popleft()
                    self._with_them.add(number)
                    waiting[pool.submit(_call, self._tasks[number])] = number
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    done = _done(future, waiting.pop(future))
                    self._with_them.discard(done.number)
                    yield done
            pool.shutdown()
        finally:
            # After Ctrl-C or an error nobody wants what the workers are still at.
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            pool.shutdown(cancel_futures=True)


def _done(future: Future[object], number: int) -> TaskDone:
    try:
        return TaskDone(number, future.result())
    except BrokenProcessPool:
        raise
    except _SetupError as error:
        raise error.args[0] from None
    except Exception as error:
        return TaskDone(number, error=error)


def _begin(n_threads: int, job: bytes) -> None:
    # before numpy or torch are imported here: each process takes its share of the cores
    os.environ["OMP_NUM_THREADS"] = str(n_threads)
    # the parent decides what Ctrl-C means; a parent that is gone ends its workers
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _job[:] = pickle.loads(job)  # noqa: S301  # nosec B301 # the parent made it


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(task: object) -> Any:
    setup, work = _job
    if not _state:
        try:
            _state.append(setup())
        except Exception as error:
            raise _SetupError(error) from error
    return work(_state[0], task)
