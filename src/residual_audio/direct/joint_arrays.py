"""The joint head and its derivative in numpy, from parameters by name: no model, no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from residual_audio.errors import StoreError
from residual_audio.store.about import JointInfo
from residual_audio.store.tensors import Array
from residual_audio.types import FloatArray


class JointSource(Protocol):
    """The part of a store that has the joint head."""

    @property
    def joint(self) -> JointInfo | None:
        """Kind and configuration; None where the joint embedding does not read the latent."""

    def operator(self, name: str) -> Array:
        """`joint/<parameter>`"""


@dataclass(frozen=True)
class Joint:
    """latent → joint, as the model's own head does it."""

    kind: str
    parameter: Callable[[str], Array]
    """`linear1.weight` … → array."""
    norm_eps: Mapping[str, float]
    """`layer_norm` … → ε."""
    config: Mapping[str, object] = field(default_factory=dict)
    """What else shapes it."""

    def __call__(self, latent: FloatArray) -> FloatArray:
        """[n, latent] → [n, joint], not normalised."""
        return _FORMS[self.kind].apply(self, np.asarray(latent))

    def derivative(self, latent: FloatArray) -> FloatArray:
        """Mean of ∂ joint / ∂ latent over these points [n, latent]: [latent, joint], in float64."""
        return _FORMS[self.kind].derivative(self, np.asarray(latent, np.float64))

    def pull(self, latent: FloatArray, directions: FloatArray) -> FloatArray:
        """What one point [latent] sees of joint directions [k, joint], by the chain rule.

        [k, latent] in float64, at the derivative of this very point.
        """
        x, along = np.asarray(latent, np.float64)[None], np.asarray(directions, np.float64)
        if self.kind != "mlp":
            return along @ self.derivative(x).T
        on = _hidden(self, x)[0] > 0  # cheaper than the whole derivative
        return ((along @ self.weight("linear2")) * on) @ self.weight("linear1")

    def weight(self, name: str) -> Array:
        return self.parameter(f"{name}.weight")

    def bias(self, name: str) -> Array:
        return self.parameter(f"{name}.bias")


def joint_of(source: JointSource) -> Joint:
    """The joint head that a store keeps."""
    about = source.joint
    kind = None if about is None else about["kind"]
    if about is None or kind not in _FORMS:
        raise StoreError(
            f"the joint head of this model ('{kind or 'not a function of the latent'}') cannot be "
            "applied from a store: run the model instead"
        )
    eps = {name.removeprefix("joint/"): value for name, value in about["norm_eps"].items()}
    return Joint(about["kind"], lambda name: source.operator(f"joint/{name}"), eps, about["config"])


@dataclass(frozen=True)
class _Form:
    apply: Callable[[Joint, Array], Array]
    derivative: Callable[[Joint, FloatArray], FloatArray]


def _identity(joint: Joint, x: Array) -> Array:
    return x


def _identity_slope(joint: Joint, x: FloatArray) -> FloatArray:
    return np.eye(x.shape[1])


def _linear(joint: Joint, x: Array) -> Array:
    return x @ joint.weight("linear").T + joint.bias("linear")


def _linear_slope(joint: Joint, x: FloatArray) -> FloatArray:
    return joint.weight("linear").T.astype(np.float64)


def _hidden(joint: Joint, x: Array) -> Array:
    return x @ joint.weight("linear1").T + joint.bias("linear1")


def _mlp(joint: Joint, x: Array) -> Array:
    hidden = np.maximum(_hidden(joint, x), 0)
    return hidden @ joint.weight("linear2").T + joint.bias("linear2")


def _mlp_slope(joint: Joint, x: FloatArray) -> FloatArray:
    on = (_hidden(joint, x) > 0).mean(0)  # how often each unit of the ReLU is open
    first, second = (joint.weight(n).T.astype(np.float64) for n in ("linear1", "linear2"))
    return (first * on) @ second


def _erf(x: Array) -> Array:
    from scipy.special import erf

    return erf(x / np.sqrt(np.array(2.0, x.dtype)))


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + _erf(x))


def _gelu_slope(x: FloatArray) -> FloatArray:
    """Φ(x) + x φ(x)."""
    return 0.5 * (1.0 + _erf(x)) + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def _gelu_mlp(joint: Joint, x: Array) -> Array:
    return _gelu(_hidden(joint, x)) @ joint.weight("linear2").T + joint.bias("linear2")


def _gelu_mlp_slope(joint: Joint, x: FloatArray) -> FloatArray:
    slope = _gelu_slope(_hidden(joint, x)).mean(0)
    first, second = (joint.weight(n).T.astype(np.float64) for n in ("linear1", "linear2"))
    return (first * slope) @ second


def _unit(joint: Joint, x: Array) -> tuple[Array, Array]:
    """Points at unit length, after the first map where there is one, and their lengths [n, 1]."""
    if joint.config["d_first"]:
        x = x @ joint.weight("first").T + joint.bias("first")
    length = np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
    return x / length, length


def _unit_mlp(joint: Joint, x: Array) -> Array:
    unit, _ = _unit(joint, x)
    return _gelu_mlp(joint, unit) if joint.config["gelu"] else _mlp(joint, unit)


def _unit_mlp_slope(joint: Joint, x: FloatArray) -> FloatArray:
    unit, length = _unit(joint, x)
    hidden = _hidden(joint, unit)
    slope = _gelu_slope(hidden) if joint.config["gelu"] else (hidden > 0).astype(np.float64)
    first, second = (joint.weight(n).T.astype(np.float64) for n in ("linear1", "linear2"))
    mean = np.zeros_like(first)
    for u, r, s in zip(unit, length, slope, strict=True):
        inner = first * s
        mean += (inner - np.outer(u, u @ inner)) / r  # a change along the point changes nothing
    mean = mean / len(x) @ second
    return joint.weight("first").T.astype(np.float64) @ mean if joint.config["d_first"] else mean


def _layer_norm(joint: Joint, x: Array) -> tuple[Array, Array]:
    sigma = np.sqrt(x.var(-1, keepdims=True) + joint.norm_eps["layer_norm"])
    return (x - x.mean(-1, keepdims=True)) / sigma, sigma


def _norm_linear(joint: Joint, x: Array) -> Array:
    normed, _ = _layer_norm(joint, x)
    return (normed * joint.weight("layer_norm") + joint.bias("layer_norm")) @ joint.weight(
        "linear"
    ).T


def _norm_linear_slope(joint: Joint, x: FloatArray) -> FloatArray:
    normed, sigma = _layer_norm(joint, x)
    d = x.shape[1]
    scaled = normed / np.sqrt(sigma)
    mean = (np.eye(d) - 1.0 / d) * (1 / sigma).mean() - scaled.T @ scaled / (d * len(x))
    return (mean * joint.weight("layer_norm")) @ joint.weight("linear").T.astype(np.float64)


def _normed(joint: Joint, e: Array) -> tuple[Array, Array]:
    """(y − mean) / σ of y = e + W₂ gelu(e), and σ [n, 1]."""
    y = e + _gelu(e) @ joint.weight("linear2").T
    sigma = np.sqrt(y.var(-1, keepdims=True) + joint.norm_eps["layer_norm"])
    return (y - y.mean(-1, keepdims=True)) / sigma, sigma


def _residual(joint: Joint, x: Array) -> Array:
    normed, _ = _normed(joint, x @ joint.weight("linear1").T)
    return normed * joint.weight("layer_norm") + joint.bias("layer_norm")


def _residual_slope(joint: Joint, x: FloatArray) -> FloatArray:
    first, second = (joint.weight(n).T.astype(np.float64) for n in ("linear1", "linear2"))
    e = x @ first
    normed, sigma = _normed(joint, e)
    d = e.shape[1]
    centre = np.eye(d) - 1.0 / d
    mean = np.zeros((d, d))
    for i in range(len(x)):
        inner = np.eye(d) + _gelu_slope(e[i])[:, None] * second  # ∂y/∂e
        mean += inner @ (centre - np.outer(normed[i], normed[i]) / d) / sigma[i]
    return first @ (mean / len(x)) * joint.weight("layer_norm")


_FORMS = {
    "identity": _Form(_identity, _identity_slope),
    "linear": _Form(_linear, _linear_slope),
    "mlp": _Form(_mlp, _mlp_slope),
    "gelu-mlp": _Form(_gelu_mlp, _gelu_mlp_slope),
    "unit-mlp": _Form(_unit_mlp, _unit_mlp_slope),
    "norm-linear": _Form(_norm_linear, _norm_linear_slope),
    "residual": _Form(_residual, _residual_slope),
}
