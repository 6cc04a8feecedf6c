"""Sparse autoencoders of the latent as SAELens writes them: a config and weights in one folder.

A unit is active where the encoder says so, by the architecture's own rule (standard, topk,
jumprelu, gated), and its direction is its row of the decoder. SAELens itself is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.errors import InputError
from residual_audio.files import read_json_object
from residual_audio.types import FloatArray

CONFIG = "cfg.json"
WEIGHTS = "sae_weights.safetensors"
ARCHITECTURES = {
    "standard": ("W_enc", "b_enc", "W_dec", "b_dec"),
    "topk": ("W_enc", "b_enc", "W_dec", "b_dec"),
    "jumprelu": ("W_enc", "b_enc", "W_dec", "b_dec", "threshold"),
    "gated": ("W_enc", "W_dec", "b_dec", "b_gate", "b_mag", "r_mag"),
}
"""What each is made of: W_enc [latent, unit], W_dec [unit, latent]."""


@dataclass(frozen=True)
class Autoencoder:
    """One sparse autoencoder."""

    architecture: str
    config: Mapping[str, Any]
    weights: Mapping[str, FloatArray]

    @property
    def directions(self) -> FloatArray:
        """[unit, latent]"""
        return self.weights["W_dec"]

    def encode(self, latent: FloatArray) -> FloatArray:
        """[clip, latent] → [clip, unit]: how strongly each unit is active, 0 where it is not."""
        w = self.weights
        x = self._normalised(np.asarray(latent, np.float64))[0]
        if self.config.get("apply_b_dec_to_input", True):
            x = x - w["b_dec"]
        if self.architecture == "gated":
            size = x @ (w["W_enc"] * np.exp(w["r_mag"])) + w["b_mag"]
            return np.where(x @ w["W_enc"] + w["b_gate"] > 0, np.maximum(size, 0), 0.0)
        before = x @ w["W_enc"] + w["b_enc"]
        if self.architecture == "jumprelu":
            return np.maximum(before, 0) * (before > np.maximum(w["threshold"], 0))
        if self.architecture == "topk":
            return _largest(before * self._norms, int(self.config["k"]))
        return np.maximum(before, 0)

    def decode(self, active: FloatArray, latent: FloatArray) -> FloatArray:
        """What the units make of the clips that they were encoded from."""
        _, scale, shift = self._normalised(np.asarray(latent, np.float64))
        found = (active / self._norms) @ self.weights["W_dec"] + self.weights["b_dec"]
        return found * scale + shift

    @property
    def _norms(self) -> FloatArray | float:
        """Activations of some topk autoencoders are in units of their decoder's rows."""
        if self.architecture == "topk" and self.config.get("rescale_acts_by_decoder_norm"):
            norms: FloatArray = np.linalg.norm(self.weights["W_dec"], axis=1)
            return norms
        return 1.0

    def _normalised(
        self, x: FloatArray
    ) -> tuple[FloatArray, FloatArray | float, FloatArray | float]:
        """The input as the encoder takes it, and what undoes that: a scale and a shift."""
        how = self.config.get("normalize_activations", "none")
        if how == "layer_norm":
            shift = x.mean(1, keepdims=True)
            scale = (x - shift).std(1, ddof=1, keepdims=True)
            return (x - shift) / (scale + 1e-5), scale, shift
        if how == "constant_norm_rescale":
            scale = np.linalg.norm(x, axis=1, keepdims=True) / x.shape[1] ** 0.5
            return x / scale, scale, 0.0
        return x, 1.0, 0.0


def is_autoencoder(path: Path) -> bool:
    """A folder that SAELens wrote, or its weights."""
    return _weights_file(path).is_file() and (_weights_file(path).parent / CONFIG).is_file()


def read_autoencoder(path: Path) -> Autoencoder:
    """Config and weights, checked against each other."""
    file = _weights_file(path)
    config = _as_now(read_json_object(file.parent / CONFIG))
    kind = str(config.get("architecture"))
    if kind not in ARCHITECTURES:
        raise InputError(
            f"'{file.parent}' is a '{kind}' of SAELens: those that can be shown are "
            f"{', '.join(ARCHITECTURES)}"
        )
    if config.get("reshape_activations", "none") != "none":
        raise InputError(f"'{file.parent}' reads single heads of a layer, not a latent")
    held = _arrays(file)
    if "log_threshold" in held:  # of a training that was stopped, in earlier versions
        held["threshold"] = np.exp(held["log_threshold"])
    missing = [name for name in ARCHITECTURES[kind] if name not in held]
    if missing:
        raise InputError(f"'{file}' has no {missing[0]}: a {kind} autoencoder needs it")
    weights = {name: held[name] for name in ARCHITECTURES[kind]}
    _check_shapes(file, weights)
    k = config.get("k", 0)
    if kind == "topk" and not (isinstance(k, int) and 0 < k <= len(weights["W_dec"])):
        raise InputError(f"'{file.parent / CONFIG}': k is {config.get('k')!r}")
    return Autoencoder(kind, config, weights)


def _weights_file(path: Path) -> Path:
    return path / WEIGHTS if path.is_dir() else path


def _as_now(config: dict[str, Any]) -> dict[str, Any]:
    """Before version 6 the activation said what the architecture says now."""
    kind = config.get("architecture", "standard")
    old = config.get("activation_fn_str", config.get("activation_fn"))
    if old == "topk":
        more = config.get("activation_fn_kwargs")
        return {**config, "architecture": "topk", **(more if isinstance(more, dict) else {})}
    if old not in (None, "relu") or config.get("finetuning_scaling_factor"):
        return {**config, "architecture": f"{kind} with {old or 'finetuned scales'}"}
    return {**config, "architecture": kind}


def _arrays(file: Path) -> dict[str, FloatArray]:
    from residual_audio.errors import ModelError
    from residual_audio.models.weights import read_safetensors

    try:
        held = read_safetensors(file)
    except ModelError as error:
        raise InputError(str(error)) from error
    arrays = {name: value.double().numpy() for name, value in held.items()}
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise InputError(f"'{file}': {name} holds NaN or infinity")
    return arrays


def _check_shapes(file: Path, weights: Mapping[str, FloatArray]) -> None:
    width, units = weights["W_enc"].shape if weights["W_enc"].ndim == 2 else (0, 0)
    wanted = {"W_enc": (width, units), "W_dec": (units, width), "b_dec": (width,)}
    for name, value in weights.items():
        if value.shape != wanted.get(name, (units,)) or not value.size:
            raise InputError(
                f"'{file}': {name} is {' × '.join(map(str, value.shape))}, which does not fit "
                f"W_enc of {width} × {units}"
            )


def _largest(values: FloatArray, k: int) -> FloatArray:
    """The k largest of each row, where they are above zero."""
    kept = np.zeros_like(values)
    rows = np.argpartition(-values, k - 1, axis=1)[:, :k]
    np.put_along_axis(kept, rows, np.maximum(np.take_along_axis(values, rows, 1), 0), 1)
    return kept
