"""Ordered look-ahead in threads (interim, being replaced)."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def prefetch(
    items: Iterable[Any], work: Callable[[Any], Any], n_threads: int = 2, depth: int = 8
) -> Iterator[tuple[Any, Any]]:
    def safe(item: Any) -> Any:
        try:
            return work(item)
        except Exception as error:
            return error

    with ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append((item, pool.submit(safe, item)))
            if len(waiting) >= depth:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
