"""Work ahead in threads: the next clips are decoded while the model runs on the present ones."""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from residual_audio.errors import InputError

Item = TypeVar("Item")
Value = TypeVar("Value")

SECONDS_TO_END = 10.0

_queues: weakref.WeakKeyDictionary[threading.Thread, Any] = weakref.WeakKeyDictionary()
_leaving = threading.Event()


class Fetched(NamedTuple, Generic[Item, Value]):
    """One item with what came of it: a value, or the error that it raised."""

    item: Item
    value: Value | None
    error: Exception | None


def prefetch(
    items: Iterable[Item],
    work: Callable[[Item], Value],
    n_threads: int = 2,
    depth: int = 8,
) -> Generator[Fetched[Item, Value], None, None]:
    """Yield `work(item)` for each item, in order, with at most `depth` results held at a time.

    An item whose work fails is delivered with its error, and the stream goes on. Closing the
    iterator (leaving the loop, Ctrl-C) drops what has not begun; threads end with the item they
    are on, and the program waits at most ten seconds for that. With `n_threads=0` everything runs
    in the caller.
    """
    if n_threads < 0 or depth < 1:
        raise InputError(
            f"prefetch needs n_threads >= 0 and depth >= 1, got {n_threads} and {depth}"
        )
    if n_threads == 0:
        return (_attempt(item, work) for item in items)
    return _ahead(items, work, n_threads, depth)


def _attempt(item: Item, work: Callable[[Item], Value]) -> Fetched[Item, Value]:
    try:
        return Fetched(item, work(item), None)
    except Exception as error:
        return Fetched(item, None, error)


def _ahead(
    items: Iterable[Item], work: Callable[[Item], Value], n_threads: int, depth: int
) -> Generator[Fetched[Item, Value], None, None]:
    tasks: queue.SimpleQueue[tuple[Item, Future[Fetched[Item, Value]]] | None] = queue.SimpleQueue()

    def serve() -> None:
        while (task := tasks.get()) is not None and not _leaving.is_set():
            item, promise = task
            if not promise.set_running_or_notify_cancel():
                continue
            try:
                promise.set_result(_attempt(item, work))
            except BaseException as error:  # nobody would hear of it in this thread
                promise.set_exception(error)

    # Daemons: at exit Python waits for other threads, which could be half-way through an hour.
    threads = [
        threading.Thread(target=serve, name=f"prefetch-{i}", daemon=True) for i in range(n_threads)
    ]
    for thread in threads:
        _queues[thread] = tasks
        thread.start()
    waiting: deque[Future[Fetched[Item, Value]]] = deque()
    source = iter(items)
    try:
        exhausted = False
        while True:
            while not exhausted and len(waiting) < depth:
                try:
                    item = next(source)
                except StopIteration:
                    exhausted = True
                    break
                promise: Future[Fetched[Item, Value]] = Future()
                waiting.append(promise)
                tasks.put((item, promise))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        for promise in waiting:
            promise.cancel()
        for _ in threads:
            tasks.put(None)


@atexit.register
def _let_threads_end() -> None:
    """Python ends a daemon wherever it is, and inside a C++ library that aborts the process."""
    _leaving.set()
    deadline = time.monotonic() + SECONDS_TO_END
    for tasks in list(_queues.values()):
        tasks.put(None)
    for thread in list(_queues):
        thread.join(max(0.0, deadline - time.monotonic()))
