"""What a campaign of faults found: how often it tried, how often the promise held."""

from __future__ import annotations

from dataclasses import dataclass, field

SHOWN = 20


@dataclass
class Campaign:
    """One kind of fault."""

    name: str
    promise: str
    tried: int = 0
    held: int = 0
    broken: list[str] = field(default_factory=list)
    """The first cases in which the promise did not hold."""

    def count(self, problem: str | None) -> None:
        """One more case; `problem` says how the promise was broken."""
        self.tried += 1
        if problem is None:
            self.held += 1
        elif len(self.broken) < SHOWN:
            self.broken.append(problem)
