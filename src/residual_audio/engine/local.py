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


def run_local(
    tasks: Sequence[Any],
    setup: Callable[[], Any],
    work: Callable[[Any, Any], Any],
    processes: int = 1,
) -> Iterator[tuple[Any, Any]]:
    """In order in this process; as they finish in several."""
    processes = min(processes, len(tasks))
    if processes <= 1:
        if tasks:
            state = setup()
            for task in tasks:
                yield task, work(state, task)
        return
    threads = max(1, (os.cpu_count() or 1) // processes)
    pool = ProcessPoolExecutor(
        processes,
        # a fork would copy the parent's threads' locks and hang
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(threads,),
    )
    others = set(multiprocessing.active_children())
    try:
        waiting = {pool.submit(_call, setup, work, task): task for task in tasks}
        while waiting:
            for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(done), done.result()
        pool.shutdown()
    except BrokenProcessPool as error:
        raise EngineError(
            "a worker process died, perhaps for lack of memory: use fewer processes or smaller "
            "batches; what is finished is kept"
        ) from error
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
