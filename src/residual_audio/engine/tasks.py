"""What engines are told, and what they give back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from residual_audio.errors import InputError

Setup = Callable[[], Any]
"""Makes what a worker needs, once a worker."""
Work = Callable[[Any, Any], Any]
"""(what `Setup` made, a task) → its result."""
TRIES = 3
"""Workers that may die over one task before it is given up."""


@dataclass(frozen=True)
class Where:
    """Where work is done, and by how many."""

    engine: str = "local"
    processes: int = 1
    """Workers; each sets up once."""
    address: str | None = None
    """Of a Ray cluster; None for the one this program is part of, else one on this machine."""
    cpus_each: float | None = None
    """Cores a Ray worker is given; None for one, and three beside a GPU of a cluster (decoding
    starves it)."""
    gpus_each: float | None = None
    """GPUs a Ray worker is given, also a fraction; None for one where the cluster has any."""
    ready: bool = False
    """Local workers branch off a process that has loaded what they need (`local.get_ready`)."""

    def __post_init__(self) -> None:
        if self.engine != "local":
            return
        for value, option in (
            (self.address, "--ray-address"),
            (self.cpus_each, "--cpus-each"),
            (self.gpus_each, "--gpus-each"),
        ):
            if value is not None:
                raise InputError(f"{option} {value} is for the ray engine: add --engine ray")

    @property
    def elsewhere(self) -> bool:
        """Whether other processes do the work."""
        return self.engine != "local" or self.processes > 1


@dataclass(frozen=True)
class TaskDone:
    """What became of one task: its result, or why there is none."""

    number: int
    """Its place among the tasks."""
    result: Any = None
    error: Exception | None = None


class Engine(Protocol):
    """Does tasks. A task may be done twice where a worker is lost: its work must bear that, as
    writing whole files does."""

    @property
    def gpus_each(self) -> float | None:
        """GPUs a worker is given; None where workers use what this process sees."""

    def run(self, tasks: Sequence[object], setup: Setup, work: Work) -> Iterator[TaskDone]:
        """As they finish. A task is asked for when a worker is there to take it. An error of
        `setup` is raised; one of `work` is told, and the rest goes on."""


def given_up(what: str) -> str:
    """Of a task that several workers died over."""
    return (
        f"{TRIES} {what} died over it, perhaps for lack of memory (use fewer processes or smaller "
        "batches), perhaps over a file that crashes its decoder"
    )
