"""Workers of a Ray cluster: begun, kept busy, replaced when they are lost."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from residual_audio.engine.tasks import TRIES, Setup, TaskDone, Work, given_up
from residual_audio.errors import EngineError, ResidualAudioError

IN_FLIGHT = 2
"""Tasks a worker has: the one it is at, and the next, so that it never waits for this side."""
LOOK_S = 2.0
"""Seconds between looks at the cluster while nothing finishes."""
START_S = 120.0
"""Seconds without any worker that has its cores after which none is taken to come."""


@dataclass(frozen=True)
class Share:
    """How many workers, and what each is given."""

    n_workers: int
    cpus: float
    gpus: float

    def __str__(self) -> str:
        gpus = f" and {self.gpus:g} GPU" if self.gpus else ""
        return f"{self.cpus:g} core{'' if self.cpus == 1 else 's'}{gpus}"


@dataclass(eq=False)
class _Member:
    actor: Any
    placed: bool = False
    """It has its cores, and is setting up or working."""
    ready: bool = False
    has: list[int] = field(default_factory=list)
    """Numbers of its tasks, the one it is at first."""


class Crew:
    """Gives tasks only to workers that have begun: one that waits for a free core holds none."""

    def __init__(
        self, ray: Any, share: Share, setup: Setup, work: Work, check: Callable[[], None]
    ) -> None:
        """`check` comes back when the cluster is there, and raises when it is gone."""
        self._ray, self._share, self._check = ray, share, check
        # Shipped once, not with every worker. A worker that dies is replaced here, not by Ray, so
        # that its tasks go to whoever is free.
        self._job = ray.put((setup, work))
        self._kind = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0)(_Worker)
        self._pending: dict[Any, tuple[_Member, int | None]] = {}
        """Call → whose it is, and the number of its task; None before the first."""
        self._members: list[_Member] = []
        self._lost_early = 0
        """Workers lost before they began, since the last that did."""
        self._idle_since = time.monotonic()

    def run(self, tasks: Sequence[Any]) -> Iterator[TaskDone]:
        left = deque(range(len(tasks)))
        blamed: Counter[int] = Counter()
        for _ in range(self._share.n_workers):
            self._hire()
        while left or any(number is not None for _, number in self._pending.values()):
            self._hand_out(left, tasks)
            done, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=LOOK_S)
            if not done:
                self._look()
                continue
            member, number = self._pending.pop(done[0])
            try:
                result = self._ray.get(done[0])
            except self._ray.exceptions.RayActorError as error:
                for finished, value in self._finished(member):
                    member.has.remove(finished)
                    yield TaskDone(finished, value)
                lost = self._replace(member, number, str(error))
                blamed.update(lost[:1])  # it was at the first; the others waited behind it
                given = [n for n in lost if blamed[n] >= TRIES]
                left.extendleft(n for n in reversed(lost) if n not in given)
                yield from (TaskDone(n, error=EngineError(given_up("workers"))) for n in given)
            except self._ray.exceptions.RayTaskError as error:
                if number is None:
                    raise _cause(error) from error
                member.has.remove(number)
                yield TaskDone(number, error=_cause(error))
            else:
                if number is None:  # first its greeting, then its setup
                    member.placed, member.ready = True, member.placed
                    self._lost_early = 0 if member.ready else self._lost_early
                    continue
                member.has.remove(number)
                yield TaskDone(number, result)

    def dismiss(self) -> None:
        for member in self._members:
            self._ray.kill(member.actor)

    def _hire(self) -> None:
        member = _Member(self._kind.remote(self._job))
        self._members.append(member)
        for call in (member.actor.greet, member.actor.begin):
            self._pending[call.remote()] = (member, None)

    def _hand_out(self, left: deque[int], tasks: Sequence[object]) -> None:
        # one round after the other, so that a last task is not the second of a busy worker
        for size in range(IN_FLIGHT):
            for member in self._members:
                if left and member.ready and len(member.has) == size:
                    number = left.popleft()
                    member.has.append(number)
                    self._pending[member.actor.run.remote(tasks[number])] = (member, number)

    def _finished(self, member: _Member) -> list[tuple[int, Any]]:
        """What it had done before it was lost, and nobody had asked for yet: that is not blamed."""
        errors = self._ray.exceptions
        found = []
        for ref, (own, number) in self._pending.items():
            if own is member and number is not None:
                with suppress(errors.RayActorError, errors.RayTaskError, errors.GetTimeoutError):
                    found.append((number, self._ray.get(ref, timeout=0)))
        return found

    def _replace(self, member: _Member, number: int | None, why: str) -> list[int]:
        """Its tasks, in order, which are now nobody's."""
        self._pending = {ref: own for ref, own in self._pending.items() if own[0] is not member}
        self._members.remove(member)
        self._check()
        self._ray.kill(member.actor)  # it may only have been out of reach
        if not member.ready:
            self._lost_early += 1
            if self._lost_early >= TRIES:
                raise EngineError(
                    f"{self._lost_early} Ray workers were lost before they could begin, perhaps "
                    f"for lack of memory; what is finished is kept. The last: {_last_line(why)}"
                )
        self._idle_since = time.monotonic()
        self._hire()
        return member.has

    def _look(self) -> None:
        self._check()
        now = time.monotonic()
        if any(member.placed for member in self._members):
            self._idle_since = now
        elif now - self._idle_since > START_S:
            free = self._ray.available_resources()
            raise EngineError(
                f"no Ray worker could be started in {START_S:.0f} s: each asks for {self._share}, "
                f"and the cluster has {free.get('CPU', 0):g} cores and {free.get('GPU', 0):g} GPUs "
                "free (--cpus-each, --gpus-each); what is finished is kept"
            )


def _last_line(text: str) -> str:
    """Where tracebacks say what happened."""
    return text.strip().split("\n")[-1].strip()


def _cause(error: object) -> Exception:
    """The error as the work raised it, where it is one of ours."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, ResidualAudioError | OSError):
        return cause
    what = f"{type(cause).__name__}: {cause}" if cause is not None else _last_line(str(error))
    return EngineError(f"a Ray worker failed with {what}")


class _Worker:
    def __init__(self, job: tuple[Setup, Work]) -> None:
        self._setup, self._work = job
        self._state: Any = None

    def greet(self) -> None:
        """Comes back as soon as there is a worker."""

    def begin(self) -> None:
        """Not in __init__: an error then reaches the other side as it is."""
        self._state = self._setup()

    def run(self, task: object) -> Any:
        return self._work(self._state, task)
