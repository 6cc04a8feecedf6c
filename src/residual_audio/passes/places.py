"""Which clips are running: told by the loops that know, read by edits that differ clip by clip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Running:
    """The items of one pass, among all that were given."""

    n_items: int
    places: Sequence[int]
    """Of each row of the batch."""


_RUNNING: ContextVar[Running | None] = ContextVar("running", default=None)


@contextmanager
def running(n_items: int, places: Sequence[int]) -> Iterator[None]:
    """While a pass over these places of `n_items` items runs, in this thread alone."""
    token = _RUNNING.set(Running(n_items, places))
    try:
        yield
    finally:
        _RUNNING.reset(token)


def what_runs() -> Running | None:
    """None where nobody said."""
    return _RUNNING.get()
