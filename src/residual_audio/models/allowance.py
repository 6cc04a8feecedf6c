"""Modules are built from configs that strangers wrote: no more may be allocated than their weights
could ever fill."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from residual_audio.errors import ModelError

_FACTORIES = frozenset(
    {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange}
)
_SPARE_BYTES = 512 * 2**20
_TENSORS_MAX = 50_000


class Allowance(TorchFunctionMode):
    """Inside it, tensors together larger than a few times the weights are refused before they are
    allocated, and so is building without end."""

    def __init__(self, where: str, weights_bytes: int) -> None:
        super().__init__()
        self.where = where
        self.left = 4 * weights_bytes + _SPARE_BYTES
        self.n_left = _TENSORS_MAX

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES:
            planned = _planned(func, args, kwargs)
            self.left -= planned.numel() * planned.element_size()
            self.n_left -= 1
            if self.left < 0 or self.n_left < 0:
                raise ModelError(
                    f"the config in '{self.where}' asks for far more than its weights could fill "
                    f"(the last tensor is {tuple(planned.shape)}): they do not belong together"
                )
        return func(*args, **kwargs)


def _planned(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """What would be allocated, without its memory."""
    if func is torch.arange and not kwargs and all(isinstance(arg, int) for arg in args):
        # without its memory, arange loads a computer algebra system: a fifth of a second
        return torch.empty(len(range(*args)), dtype=torch.int64, device="meta")
    asked = {key: value for key, value in kwargs.items() if key not in ("out", "pin_memory")}
    planned: torch.Tensor = func(*args, **{**asked, "device": "meta"})
    return planned
