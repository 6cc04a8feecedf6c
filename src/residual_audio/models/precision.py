"""Products in half the bits, where the device gains by it; everything else stays in float32.

Only matrix products of the blocks are meant (projections and MLPs, and attention on a GPU). Norms,
softmax, residual sums, pooling, front-end and joint head are float32 in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from residual_audio.errors import InputError

Precision = Literal["float32", "bf16", "fp16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
_TYPES = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Products:
    """How products are made in a run: weights are laid out once as the kernels read them fastest,
    and nothing of it is kept after the run, so that no run sees weights of another."""

    type: torch.dtype | None
    """None for that of the weights."""
    ready: dict[nn.Linear, tuple[tuple[object, ...], Tensor, Tensor | None]] = field(
        default_factory=dict
    )
    """Layer → what they were made of, and weight and bias as kernels read them."""
    maps: dict[nn.Module, tuple[tuple[object, ...], object]] = field(default_factory=dict)
    """Block → what they were made of, and products of its weights that a run asks for again."""


_PRODUCTS: ContextVar[Products | None] = ContextVar("products", default=None)


def products() -> Products | None:
    """As set here and now; None outside of runs."""
    return _PRODUCTS.get()


def prepare(precision: Precision, device: torch.device) -> Products:
    """For several runs of one model whose weights stay as they are."""
    check_precision(precision, device)
    return Products(_TYPES[precision])


@contextmanager
def products_in(
    precision: Precision, device: torch.device, prepared: Products | None = None
) -> Iterator[None]:
    """While it lasts, in this thread and those that share its context."""
    token = _PRODUCTS.set(prepare(precision, device) if prepared is None else prepared)
    try:
        yield
    finally:
        _PRODUCTS.reset(token)


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse what this device cannot do, or would be slower at."""
    if precision not in PRECISIONS:
        raise InputError(f"no precision '{precision}'; there are: {', '.join(PRECISIONS)}")
    if precision == "float32":
        return
    why = _bf16_reason(device) if precision == "bf16" else _fp16_reason(device)
    if why is not None:
        raise InputError(f"--precision {precision} is refused on {device.type}: {why}")


def _bf16_reason(device: torch.device) -> str | None:
    if device.type == "cuda":
        fast = torch.cuda.get_device_capability(device)[0] >= 8
        return None if fast else "this GPU has no bfloat16 units (Ampere or later); use fp16"
    if device.type != "cpu":
        return "bfloat16 products were never measured there"
    if not torch.backends.mkldnn.is_available():
        return "this torch has no oneDNN, whose kernels it needs"
    if not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return "the processor has neither AVX512-BF16 nor AMX, so that it would be slower"
    return None


def _fp16_reason(device: torch.device) -> str | None:
    if device.type == "cuda":
        return None
    return "half floats are fast on CUDA GPUs only; use bf16"
