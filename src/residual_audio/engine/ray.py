"""A Ray cluster: one that is named, the one this program runs in, or one on this machine."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from residual_audio.engine.ray_crew import Crew, Share
from residual_audio.engine.tasks import Setup, TaskDone, Where, Work
from residual_audio.errors import EngineError, MissingExtraError

ANSWERS_S = 5.0
"""Seconds that an address has to answer."""
GONE_S = 20.0
"""Seconds without an answer after which a cluster is taken for gone."""
_AGAIN_S = 0.5


@contextmanager
def connected(where: Where) -> Iterator[RayEngine]:
    """Joined to the cluster; a connection that was there before stays."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "cluster", "The ray engine") from error
    ours = not ray.is_initialized()
    if ours:
        _join(ray, where)
    try:
        # one of our own on this machine never grows: what it lacks now it will always lack
        fixed = ours and not (where.address or os.environ.get("RAY_ADDRESS"))
        yield RayEngine(ray, where, fixed)
    finally:
        if ours:
            ray.shutdown()


def _join(ray: Any, where: Where) -> None:
    address = where.address or os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "include_dashboard": False,
        "logging_level": logging.WARNING,
    }
    if address:
        _ask(address)
    else:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if address:  # a cluster has its own number of cores, and refuses to be told one
            ray.init(address=address, **quiet)
        else:
            cores = -(-where.processes * (where.cpus_each or 1) // 1)
            ray.init(address="local", num_cpus=int(cores), **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().split("\n")[0]
        raise EngineError(f"no Ray cluster at '{address or 'this machine'}': {reason}") from error


def _ask(address: str) -> None:
    """Ray itself would try for minutes where nobody answers."""
    place = _place(address)
    if place is not None and not _answers(place):
        raise EngineError(
            f"nobody answers at the Ray address '{address}' (waited {ANSWERS_S:.0f} s): is the "
            "cluster up, and is this the address that `ray start --head` printed?"
        )


def _place(address: str) -> tuple[str, int] | None:
    """Host and port, where the address has them (`auto` has none)."""
    host, colon, port = (
        address.partition("://")[2].rpartition(":")
        if "://" in address
        else (address.rpartition(":"))
    )
    return (host.strip("[]"), int(port)) if colon and port.isdigit() else None


def _answers(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=ANSWERS_S).close()
    except OSError:
        return False
    return True


class RayEngine:
    """Workers of a cluster; one that is lost is replaced, and what it was at is done again."""

    def __init__(self, ray: Any, where: Where, fixed: bool = False) -> None:
        self._ray = ray
        self._where = where
        self._fixed = fixed
        self._gcs = _place(str(ray.get_runtime_context().gcs_address))
        self._gone = False
        wanted = where.gpus_each
        if wanted is None:
            wanted = 1.0 if ray.cluster_resources().get("GPU", 0) else 0.0
        self.gpus_each: float = wanted

    def run(self, tasks: Sequence[object], setup: Setup, work: Work) -> Iterator[TaskDone]:
        if not tasks:
            return
        # decoding starves a GPU at one core; a cluster of our own has one core a worker, as asked
        cpus = self._where.cpus_each or (3.0 if self.gpus_each and not self._fixed else 1.0)
        share = Share(min(self._where.processes, len(tasks)), cpus, self.gpus_each)
        self._be_there()
        if self._fixed:
            self._check_room(share)
        crew = Crew(self._ray, share, setup, work, self._be_there)
        try:
            yield from crew.run(tasks)
        finally:
            if not self._gone:
                crew.dismiss()

    def _check_room(self, share: Share) -> None:
        there = self._ray.cluster_resources()
        if share.cpus > there.get("CPU", 0) or share.gpus > there.get("GPU", 0):
            raise EngineError(
                f"no Ray worker can be started on this machine: each asks for {share}, and there "
                f"are {there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs "
                "(--cpus-each, --gpus-each)"
            )

    def _be_there(self) -> None:
        """Wait while the cluster is silent, and raise when it has been for too long: whoever goes
        on calling a dead cluster is ended by Ray, without a word."""
        silent_since = time.monotonic()
        while self._gcs is not None and not _answers(self._gcs):
            if time.monotonic() - silent_since >= GONE_S:
                self._gone = True
                raise EngineError(
                    f"the Ray cluster at {self._gcs[0]}:{self._gcs[1]} went away; what is finished "
                    "is kept, and the same command goes on from there when it is back"
                )
            time.sleep(_AGAIN_S)
