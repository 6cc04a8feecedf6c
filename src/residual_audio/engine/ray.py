"""Workers of a Ray cluster; without an address, a Ray of its own on this machine."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from residual_audio.errors import EngineError, MissingExtraError, ResidualAudioError


def run_ray(
    tasks: Sequence[Any],
    setup: Callable[[], Any],
    work: Callable[[Any, Any], Any],
    processes: int = 1,
    address: str | None = None,
    gpus_each: float = 0,
) -> Iterator[tuple[Any, Any]]:
    """As they finish. Each worker sets up once; a task whose worker dies is done again."""
    if not tasks:
        return
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "cluster", "The ray engine") from error
    processes = min(processes, len(tasks))
    ours = not ray.is_initialized()
    if ours:
        options: dict[str, Any] = {"address": address} if address else {"num_cpus": processes}
        try:
            ray.init(include_dashboard=False, log_to_driver=False, **options)  # type: ignore[arg-type]
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise EngineError(f"no Ray cluster at '{address or 'local'}': {error}") from error
    try:
        yield from _share_out(ray, tasks, setup, work, processes, gpus_each)
    finally:
        if ours:
            ray.shutdown()


def _share_out(
    ray: Any,
    tasks: Sequence[Any],
    setup: Callable[[], Any],
    work: Callable[[Any, Any], Any],
    processes: int,
    gpus_each: float,
) -> Iterator[tuple[Any, Any]]:
    # A task may run twice if a node is lost: writing must replace whole files, as shards do.
    remote = ray.remote(num_cpus=1, num_gpus=gpus_each, max_restarts=-1, max_task_retries=2)(
        _Worker
    )
    workers = [remote.remote(setup, work) for _ in range(processes)]
    left = deque(tasks)
    busy = {
        worker.run.remote(task): (worker, task) for worker in workers for task in [left.popleft()]
    }
    try:
        while busy:
            done, _ = ray.wait(list(busy), num_returns=1)
            worker, task = busy.pop(done[0])
            try:
                result = ray.get(done[0])
            except ray.exceptions.RayTaskError as error:
                raise _cause(error) from error
            except ray.exceptions.RayActorError as error:
                raise EngineError(
                    f"a Ray worker was lost and could not be restarted: {error}"
                ) from error
            if left:
                following = left.popleft()
                busy[worker.run.remote(following)] = (worker, following)
            yield task, result
    finally:
        for worker in workers:
            with contextlib.suppress(Exception):  # the cluster may be gone already
                ray.kill(worker)


def _cause(error: Any) -> Exception:
    """The error as the work raised it, where it is one of ours."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, ResidualAudioError) else error


class _Worker:
    def __init__(self, setup: Callable[[], Any], work: Callable[[Any, Any], Any]) -> None:
        self._setup = setup
        self._work = work
        self._state: list[Any] = []

    def run(self, task: Any) -> Any:
        if not self._state:  # here, not in __init__: an error then reaches the caller as it is
            self._state.append(self._setup())
        return self._work(self._state[0], task)
