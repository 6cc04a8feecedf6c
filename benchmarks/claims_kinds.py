"""What a claim is: read from any run, from a study of its own, or open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from claims_measured import Measured

Holds = bool | None
"""None: these clips cannot tell."""


@dataclass(frozen=True)
class Claim:
    """One sentence of a document."""

    id: str
    source: str
    text: str
    published: str


@dataclass(frozen=True)
class RunClaim(Claim):
    """Read from any run."""

    rule: str
    """When it holds (and when it does not, where that is not simply the contrary)."""
    show: Callable[[Measured], str]
    holds: Callable[[Measured], Holds]
    staged: bool = False
    """Needs an encoder of stages: says nothing of a plain transformer."""
    ablated: bool = False
    """Read from blocks taken out, which may have had fewer clips."""


@dataclass(frozen=True)
class StudyClaim(Claim):
    """Read from a result file of its own."""

    rule: str
    result: str
    """File stem below docs/results/claims."""
    show: Callable[[Mapping[str, Any]], str]
    holds: Callable[[Mapping[str, Any]], Holds]


@dataclass(frozen=True)
class OpenClaim(Claim):
    """Nothing here can decide it."""

    reason: str
    rule: str = "–"
