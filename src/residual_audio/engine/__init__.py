"""Where work runs: here, in local processes, or on a Ray cluster. Nothing here knows what it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from residual_audio.engine.tasks import Engine, TaskDone, Where
from residual_audio.errors import InputError

__all__ = ["ENGINES", "Engine", "TaskDone", "Where", "open_engine"]

ENGINES = ("local", "ray")


@contextmanager
def open_engine(where: Where | None = None) -> Iterator[Engine]:
    """The engine that was asked for, connected; it is left as it was found."""
    where = where or Where()
    if where.processes < 1:
        raise InputError(f"work needs at least 1 process, got {where.processes}")
    if where.engine == "local":
        from residual_audio.engine.local import LocalEngine

        yield LocalEngine(where)
    elif where.engine == "ray":
        from residual_audio.engine.ray import connected

        with connected(where) as engine:
            yield engine
    else:
        raise InputError(f"no engine '{where.engine}'; there are: {', '.join(ENGINES)}")
