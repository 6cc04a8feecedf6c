"""Many small tensor jobs on a CPU: one core each, instead of all cores on each in turn.

Splitting every small operation over all cores loses much of the gain to waiting, and nearly all of
it when decoding or another program keeps one core busy. A job that stays on one core also gives the
same bits whatever the number of cores.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

import torch
from torch import Tensor

Owner = TypeVar("Owner")
Result = TypeVar("Result")
CLIPS_A_JOB = 4
"""Each job reads all weights from shared memory: one clip a job is up to a tenth slower."""

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def on_single_cores(work: Callable[[Iterator[int]], None], n_jobs: int) -> None:
    """Let each core run `work`, which takes job numbers 0 … n_jobs − 1 from a shared iterator."""
    n_cores = torch.get_num_threads()
    jobs = iter(range(n_jobs))
    if n_cores == 1:
        work(jobs)
        return
    inference = torch.is_inference_mode_enabled()
    around = copy_context()

    def on_one_core() -> None:
        with torch.inference_mode(inference), torch.no_grad():
            around.copy().run(work, jobs)

    pool = _single_core_threads(n_cores)
    for done in [pool.submit(on_one_core) for _ in range(min(n_cores, n_jobs))]:
        done.result()


def stream_clips(
    work: Callable[[Tensor, Sequence[Owner]], Result],
    batches: Iterable[tuple[Tensor, Sequence[Owner]]],
    *,
    exact: bool = False,
) -> Generator[Result, None, None]:
    """`work` on batches of clips and what each clip belongs to, results in order.

    On a CPU it gets a few clips at a time, all on one core. For an encoder that is about a tenth
    faster than all cores on every product, memory is that of a few clips, and no core waits at
    the end of a batch for another. How a batch is cut does not depend on other batches.
    Fewer clips than cores, gradients or another device: a batch in one call. With `exact` a batch
    is always cut in the same way, so that results are the same bits on any number of cores.
    """
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    around = copy_context()

    def as_here(clips: Tensor, owners: Sequence[Owner]) -> Result:
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            # a context runs in one thread at a time, so each job takes its own copy
            return around.copy().run(work, clips, owners)

    n_cores = 1 if grad else torch.get_num_threads()
    return _stream(as_here, batches, n_cores, exact and not grad)


def _stream(
    work: Callable[[Tensor, Sequence[Owner]], Result],
    batches: Iterable[tuple[Tensor, Sequence[Owner]]],
    n_cores: int,
    exact: bool,
) -> Generator[Result, None, None]:
    waiting: deque[Future[Result]] = deque()
    try:
        for batch, owners in batches:
            alone = n_cores == 1 or (len(batch) < n_cores and not exact)
            if batch.device.type != "cpu" or (alone and not exact):
                while waiting:
                    yield waiting.popleft().result()
                yield work(batch, owners)
                continue
            size = CLIPS_A_JOB if exact else min(CLIPS_A_JOB, len(batch) // n_cores)
            parts = [slice(start, start + size) for start in range(0, len(batch), size)]
            if alone:
                yield from (work(batch[part], owners[part]) for part in parts)
                continue
            pool = _single_core_threads(n_cores)
            for part in parts:
                waiting.append(pool.submit(work, batch[part], owners[part]))
                while len(waiting) > 2 * n_cores:
                    yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for left in waiting:
            left.cancel()


def _single_core_threads(n: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size != n:
            if _pool is not None:
                _pool.shutdown(wait=False)
            _pool = None
            ready = threading.Barrier(n + 1)

            def begin() -> None:
                torch.get_num_threads()  # the first call in a thread takes over the default
                torch.set_num_threads(1)
                with suppress(threading.BrokenBarrierError):
                    ready.wait()

            pool = ThreadPoolExecutor(n, thread_name_prefix="single-core", initializer=begin)
            try:
                for _ in range(n):
                    pool.submit(lambda: None)
                ready.wait()
            except BaseException:  # Ctrl-C: threads left waiting would keep the program alive
                ready.abort()
                raise
            finally:
                # The number is kept for each thread, except the default for threads yet to come.
                torch.set_num_threads(n)
            _pool, _pool_size = pool, n
        return _pool


def _forget_threads() -> None:
    """Threads do not survive a fork."""
    global _pool, _lock
    _pool = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
