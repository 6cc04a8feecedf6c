"""Many small jobs on all cores: one head a thread, each with single-threaded linear algebra.

The products of one head are too small to be worth splitting, and most of the rest is element-wise
work that runs on one core anyway; NumPy lets other threads run meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

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
    with _libraries(len(sys.modules)).limit(limits=1, user_api="blas"):
        n_cores = available_cores()
        if n_cores == 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(n_cores) as pool:
            return list(pool.map(work, items))


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """The thread pools of the loaded libraries. To look for them takes longer than a small job: it
    is done again only after an import, which is how another library comes in."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
