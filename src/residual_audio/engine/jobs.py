"""Many small jobs on all cores: one head a thread, each with single-threaded linear algebra.

The products of one head are too small to be worth splitting, and most of the rest is element-wise
work that runs on one core anyway; NumPy lets other threads run meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
TaskDone = TypeVar("TaskDone")


def available_cores() -> int:
    """Cores this process may use, fewer where OMP_NUM_THREADS says so."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, int(asked))) if asked.isdigit() else max(1, cores)


def on_cores(work: Callable[[Item], TaskDone], items: Iterable[Item]) -> list[TaskDone]:
    """`work` of each item, in order; the first error ends it."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        n_cores = available_cores()
        if n_cores == 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(n_cores) as pool:
            return list(pool.map(work, items))
