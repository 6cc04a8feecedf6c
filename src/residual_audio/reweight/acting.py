"""Gains at work in every pass of an encoder: inside the network, or on the direct path."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from residual_audio.capture.direct_pools import Direct
from residual_audio.capture.operators import encoder_operators
from residual_audio.direct.contributions import Captured, Contributions
from residual_audio.errors import InputError
from residual_audio.models.edited import Pass, PassChange, SiteChange
from residual_audio.models.encoder import Encoded, Encoder, Tap
from residual_audio.reweight.gains import check_gains
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.terms import apply_direct
from residual_audio.reweight.uncorrelated import Uncorrelated
from residual_audio.types import Gains, Site, parse_units


def gains_change(gains: Gains, encoder: Encoder) -> PassChange:
    """Gains as a change of every pass; both paths."""
    check_gains(gains)
    digest, label = gains_digest(gains), gains_label(gains)
    if gains.path == "direct":
        encoder.direct_path()  # an encoder that has none says so here
        return DirectChange(gains, label, digest)
    return NetworkChange(gains, encoder.sites, label, digest)


def gains_label(gains: Gains) -> str:
    """What these gains are called behind the name of a model."""
    return f"gains {gains_digest(gains)[:8]}"


def gains_digest(gains: Gains) -> str:
    """The same for the same gains, wherever they lie."""
    whole = hashlib.sha256(f"{gains.path} {gains.keep_mean} {sorted(gains.means.items())}".encode())
    for unit in sorted(gains.gains):
        spectrum = gains.spectra[unit]
        whole.update(unit.encode())
        read = [spectrum.readers] if isinstance(spectrum, Uncorrelated) else []
        for array in (gains.gains[unit], spectrum.mean, spectrum.basis, *read):
            # as files hold them, so that gains that were saved are the same gains
            whole.update(np.ascontiguousarray(array, np.float32).tobytes())
    return whole.hexdigest()


@dataclass(frozen=True)
class NetworkChange:
    """Gains inside the network, applied at the sites."""

    gains: Gains
    sites: Sequence[Site]
    label: str
    digest: str
    _made: dict[tuple[torch.device, torch.dtype], SiteChange] = field(default_factory=dict)

    @property
    def on_output(self) -> bool:
        return "output" in self.gains.gains

    @property
    def sums_up(self) -> bool:
        return all(unit.kind in ("head", "mlp") for unit in parse_units(self._names, self.sites))

    @property
    def _names(self) -> list[str]:
        return list(self.gains.gains)

    def run(self, encoder: Encoder, asked: Pass) -> Encoded:
        weights = next(encoder.parameters())
        key = (weights.device, weights.dtype)
        if key not in self._made:
            self._made[key] = self._on(*key)
        return self._made[key].run(encoder, asked)

    @torch.no_grad()
    def _on(self, device: torch.device, dtype: torch.dtype) -> SiteChange:
        # a cache filled in inference mode must still serve a pass with gradients
        with torch.inference_mode(False):
            acting = NetworkGains(self.gains, self.sites, dtype=dtype).to(device)
            acting.requires_grad_(False)

            def output(latent: Tensor) -> Tensor:
                return acting.output(Encoded(latent, latent[:, None])).latent

            edit = acting.edit()
        return SiteChange(self.label, self.digest, edit, output if self.on_output else None)


@dataclass(frozen=True)
class DirectChange:
    """Gains on what each unit adds to the latent: the network itself runs as it is."""

    gains: Gains
    label: str
    digest: str
    _one_at_a_time: Lock = field(default_factory=Lock, repr=False)
    _paths: dict[int, _Path] = field(default_factory=dict, repr=False)

    on_output = True
    sums_up = False

    def run(self, encoder: Encoder, asked: Pass) -> Encoded:
        if asked.start is not None:
            raise InputError(
                "direct gains act on what every block adds to the latent: a pass cannot start from "
                "a saved state with them"
            )
        path = self._path(encoder)
        direct = path.direct.twin()
        encoded = replace(asked, tap=_Both(asked.tap, direct)).through(encoder)
        arrays = {name: value.detach().cpu().numpy() for name, value in direct.finish().items()}
        arrays["embedding/latent"] = encoded.latent.detach().cpu().numpy()
        latent = apply_direct(path.contributions(arrays), self.gains)
        return replace(encoded, latent=torch.from_numpy(latent).to(encoded.latent))

    def _path(self, encoder: Encoder) -> _Path:
        with self._one_at_a_time:
            if id(encoder) not in self._paths:
                self._paths[id(encoder)] = _Path(encoder)
            return self._paths[id(encoder)]


class _Path:
    """The direct path of an encoder, its matrices worked out once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        with torch.inference_mode(False), torch.no_grad():
            self.direct = Direct(encoder)
        self._first: Contributions | None = None

    @cached_property
    def _operators(self) -> dict[str, np.ndarray]:
        return dict(encoder_operators(self.encoder, ("direct",)))

    def contributions(self, arrays: dict[str, np.ndarray]) -> Contributions:
        source = Captured(self.encoder.sites, arrays, self._operators)
        if self._first is None:
            self._first = Contributions(source, dtype=np.float32)
        return self._first.of_other_clips(source)


class _Both:
    """Two taps on one pass."""

    def __init__(self, first: Tap | None, direct: Direct) -> None:
        self._taps: list[Tap] = [direct] if first is None else [first, direct]
        self.points = frozenset[str]().union(*(tap.points for tap in self._taps))

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        for tap in self._taps:
            if point in tap.points:
                tap(point, where, value)
