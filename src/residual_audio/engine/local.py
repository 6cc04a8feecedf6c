"""This process, or several on this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from residual_audio.errors import EngineError

_state: list[Any] = []
_REPLACED = 3
"""Times that dead workers are replaced before anything more is finished."""


def run_local(
    tasks: Sequence[Any],
    setup: Callable[[], Any],
    work: Callable[[Any, Any], Any],
    processes: int = 1,
) -> Iterator[tuple[Any, Any]]:
    """In order in this process; as they finish in several. Processes that die are replaced, and
    what they were at is done again."""
    processes = min(processes, len(tasks))
    if processes <= 1:
        if tasks:
            state = setup()
            for task in tasks:
                yield task, work(state, task)
        return
    left, lost = list(tasks), 0
    while left:
        n_before = len(left)
        try:
            for task, found in _in_pool(left, setup, work, processes):
                left.remove(task)
                yield task, found
        except BrokenProcessPool as error:
            # a task may run twice: writing must replace whole files, as shards do
            lost = lost + 1 if len(left) == n_before else 1
            if lost > _REPLACED:
                raise EngineError(
                    f"worker processes died {lost} times before anything was finished, perhaps for "
                    "lack of memory: use fewer processes or smaller batches; what is finished is "
                    "kept"
                ) from error


def _in_pool(
    tasks: Sequence[Any],
    setup: Callable[[], Any],
    work: Callable[[Any, Any], Any],
    processes: int,
) -> Iterator[tuple[Any, Any]]:
    """As they finish, in processes that end with it; a process that dies ends it."""
    pool = ProcessPoolExecutor(
        min(processes, len(tasks)),
        # a fork would copy the parent's threads' locks and hang
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(max(1, (os.cpu_count() or 1) // processes),),
    )
    others = set(multiprocessing.active_children())
    try:
        waiting = {pool.submit(_call, setup, work, task): task for task in tasks}
        while waiting:
            for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(done), done.result()
        pool.shutdown()
    finally:
        # After Ctrl-C or an error nobody wants what the workers are still at.
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _begin(n_threads: int) -> None:
    # before numpy or torch are imported here: each process takes its share of the cores
    os.environ["OMP_NUM_THREADS"] = str(n_threads)
    # the parent decides what Ctrl-C means; a parent that is gone ends its workers
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(setup: Callable[[], Any], work: Callable[[Any, Any], Any], task: Any) -> Any:
    if not _state:
        _state.append(setup())
    return work(_state[0], task)
