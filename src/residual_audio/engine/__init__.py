"""Where work runs: here, in local processes, or on a Ray cluster. Nothing here knows what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from residual_audio.errors import InputError

ENGINES = ("local", "ray")


def run(
    tasks: Sequence[Any],
    setup: Callable[[], Any],
    work: Callable[[Any, Any], Any],
    *,
    engine: str = "local",
    processes: int = 1,
    address: str | None = None,
    gpus_each: float = 0,
) -> Iterator[tuple[Any, Any]]:
    """(task, work(state, task)) as they finish; each worker calls `setup` once for its state."""
    if processes < 1:
        raise InputError(f"work needs at least 1 process, got {processes}")
    if engine == "local":
        if address is not None:
            raise InputError(f"the address '{address}' is for the ray engine: add --engine ray")
        from residual_audio.engine.local import run_local

        return run_local(tasks, setup, work, processes)
    if engine == "ray":
        from residual_audio.engine.ray import run_ray

        return run_ray(tasks, setup, work, processes, address, gpus_each)
    raise InputError(f"no engine '{engine}'; there are: {', '.join(ENGINES)}")
