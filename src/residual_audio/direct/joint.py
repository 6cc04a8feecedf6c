"""Joint heads in numpy, from the parameters kept in a store: latent → joint without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from residual_audio.errors import StoreError
from residual_audio.store.tensors import Array

Parameters = Callable[[str], Array]


def apply_joint(description: Mapping[str, Any] | None, parameters: Parameters, x: Array) -> Array:
    """[n, latent] → [n, joint], not normalised."""
    kind = None if description is None else description["kind"]
    if kind not in _HEADS:
        raise StoreError(
            f"the joint head of this model ('{kind or 'not a function of the latent'}') cannot be "
            "applied from a store: run the model instead"
        )
    assert description is not None
    return _HEADS[kind](parameters, description, x)


def _linear(parameters: Parameters, name: str, x: Array, bias: bool = True) -> Array:
    out = x @ parameters(f"joint/{name}.weight").T
    return out + parameters(f"joint/{name}.bias") if bias else out


def _gelu(x: Array) -> Array:
    from scipy.special import erf

    return 0.5 * x * (1.0 + erf(x / np.sqrt(np.array(2.0, x.dtype))))


def _identity(parameters: Parameters, description: Mapping[str, Any], x: Array) -> Array:
    return x


def _one_layer(parameters: Parameters, description: Mapping[str, Any], x: Array) -> Array:
    return _linear(parameters, "linear", x)


def _mlp(parameters: Parameters, description: Mapping[str, Any], x: Array) -> Array:
    hidden = np.maximum(_linear(parameters, "linear1", x), 0)
    return _linear(parameters, "linear2", hidden)


def _residual(parameters: Parameters, description: Mapping[str, Any], x: Array) -> Array:
    e = _linear(parameters, "linear1", x, bias=False)
    y = e + _linear(parameters, "linear2", _gelu(e), bias=False)
    eps = description["norm_eps"]["joint/layer_norm"]
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + eps)
    return y * parameters("joint/layer_norm.weight") + parameters("joint/layer_norm.bias")


_HEADS: dict[str, Callable[[Parameters, Mapping[str, Any], Array], Array]] = {
    "identity": _identity,
    "linear": _one_layer,
    "mlp": _mlp,
    "residual": _residual,
}
