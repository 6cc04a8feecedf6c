"""A listener that remembers how far each step came."""

from __future__ import annotations

from residual_audio.progress import Progress


class Counted(Progress):
    def __init__(self) -> None:
        self.steps: dict[str, tuple[int | None, int]] = {}
        self.name = ""

    def step(self, name: str, total: int | None = None, unit: str = "clips") -> None:
        self.name = name
        self.steps[name] = (total, 0)

    def advance(self, n: int = 1, said: str = "") -> None:
        total, done = self.steps[self.name]
        self.steps[self.name] = (total, done + n)
