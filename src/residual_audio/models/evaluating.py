"""Passes that leave no trace: evaluation mode, full precision, and everything as before after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import nn

_LOCK = Lock()
_INSIDE: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""Parts that were in training mode when a pass began → passes that are inside them."""


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """All parts of a model in evaluation mode; those that were learning go on afterwards.

    A batch norm in training mode would change with every clip that is merely looked at. Passes of
    several threads share the mode: the last one to leave puts it back.
    """
    parts = list(model.modules()) if isinstance(model, nn.Module) else []
    with _LOCK:
        held = [part for part in parts if part.training or part in _INSIDE]
        for part in held:
            _INSIDE[part] = _INSIDE.get(part, 0) + 1
            part.training = False
    try:
        yield
    finally:
        with _LOCK:
            for part in held:
                _INSIDE[part] -= 1
                if not _INSIDE[part]:
                    del _INSIDE[part]
                    part.training = True


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No autocast, whatever surrounds the pass: the same clip gives the same vector everywhere."""
    with torch.autocast(device.type, enabled=False):
        yield
