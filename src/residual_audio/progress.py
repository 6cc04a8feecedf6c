"""How far long work is: one object that all of it takes, and one line that people see of it.

Work says which step begins and how much it holds, how much of it is done, and what would be kept if
the user stopped now. This class listens and says nothing; the command line has one that draws.
"""

from __future__ import annotations


class Progress:
    """Silent: the default of every function that works long."""

    def step(self, name: str, total: int | None = None, unit: str = "clips") -> None:
        """A new step begins; `total` is how many of `unit` it holds, None where nobody knows."""

    def advance(self, n: int = 1) -> None:
        """So many more of the current step are done."""

    def note(self, line: str) -> None:
        """A line for people that stays on the screen: what a step found, or why it was left out."""

    def keeps(self, sentence: str) -> None:
        """What is kept, and how to go on, if the work is stopped from now on."""


SILENT = Progress()
