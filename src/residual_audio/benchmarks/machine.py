"""Where and when something was measured, and how much other programs did meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict


class Machine(TypedDict):
    """What a reader needs to know beside a ratio."""

    date: str
    processor: str
    cores: int
    load: float
    """Cores that other programs kept busy meanwhile, on average; from 0 to `cores`."""


@dataclass(frozen=True)
class Company:
    """How much was worked so far, by everybody and by this program."""

    at: float
    all_s: float | None
    """Seconds of processor time since the machine began; None where the system does not say."""
    own_s: float

    @classmethod
    def now(cls) -> Company:
        both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        own = sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, both))
        return cls(time.monotonic(), _busy_s(), own)

    def since(self) -> float:
        """Cores that others kept busy since then: the average number of programs that wanted one
        (a load) says it late, and counts this program too."""
        now = Company.now()
        seconds = max(now.at - self.at, 1e-9)
        if now.all_s is None or self.all_s is None:
            return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        others = (now.all_s - self.all_s) - (now.own_s - self.own_s)
        return max(0.0, others / seconds)


class UnderWay:
    """The bench that this process runs, and when it began."""

    bench = ""
    since = Company(0.0, None, 0.0)


def machine(company: Company) -> Machine:
    """`company` was taken when measuring began."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "load": round(company.since(), 2),
    }


def _busy_s() -> float | None:
    try:
        first = Path("/proc/stat").read_text().splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _, _, irq, soft, steal = (int(ticks) for ticks in first[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    first: dict[str, str] = {}
    for key, _, value in (line.partition(":") for line in lines):
        first.setdefault(key.strip(), value.strip())
    name, family = first.get("model name"), first.get("cpu family")
    if not name:
        return platform.processor() or platform.machine()
    # machines for hire hide the rest of the name: two generations may be called alike
    return f"{name} (family {family}, model {first.get('model')})" if family else name
