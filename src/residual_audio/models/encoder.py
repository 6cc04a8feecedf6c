"""What every audio encoder offers: named sites, a tap on each, an edit at each, a start anywhere.

Points of a block, in order of computation:

- `stream`  residual stream entering the block                    [clip, token, width]
- `raw`     head outputs before W_O (attention sites)             [clip, token, head, d_head]
- `maps`    attention probabilities, explicit only when tapped    [clip, window, head, query, key]
- `out`     what the site adds to the stream (after W_O, or MLP)  [clip, token, width]

and of the encoder: `heard` (which tokens hear something, [clip, token], before the first block of
an encoder that pools over those alone), `scale` (1/σ of each token at the norm that ends a stage,
[clip, token]; there, times the token's share of the pool over that of a plain mean) and `end`
(stream at the end of a stage, before merging).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from residual_audio.errors import InputError
from residual_audio.types import Site

if TYPE_CHECKING:
    from residual_audio.models.block import Block
    from residual_audio.models.direct_path import DirectPath

Features = Tensor | tuple[Tensor, Tensor]
"""What a front-end gives: log-mel [clip, frame, mel]; with fusion, [clip, 4, frame, mel] and which
clips are longer than the window [clip]."""

Edit = Mapping[tuple[Site, str], Callable[[Tensor], Tensor]]
"""(site, `raw` or `out`) → a function of the tensor there; gradients flow through it."""


@dataclass(frozen=True)
class Constant:
    """An edit that puts one value wherever anything was: a block does not work out what it takes
    the place of, where nobody else asks for it."""

    value: Tensor | float

    def __call__(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x) + self.value


class Tap(Protocol):
    """Receives values while the encoder runs; asked only for the points it names."""

    points: frozenset[str]

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None: ...


@dataclass(frozen=True)
class State:
    """The residual stream at a block boundary: what enters `block`, counted over all stages."""

    block: int
    tokens: Tensor
    heard: Tensor | None = None
    """[clip, token] which of them hear something, for encoders that pool over those alone."""

    def take(self, clips: slice) -> State:
        """Of these clips."""
        heard = None if self.heard is None else self.heard[clips]
        return State(self.block, self.tokens[clips], heard)


@dataclass(frozen=True)
class Encoded:
    """What a forward pass gives: pooled latent and final tokens."""

    latent: Tensor
    """[clip, latent]"""
    tokens: Tensor
    """[clip, token, latent], after the final norm, in raster order."""
    values: Tensor | None = None
    """Final tokens of the value path (MGA-CLAP), in the same order."""
    special: Tensor | None = None
    """Final CLS (and distillation) tokens of a ViT; `tokens` holds the patches alone."""


class EncoderConfig(Protocol):
    """What shapes an encoder."""

    @property
    def latent(self) -> int:
        """Width of the pooled latent."""

    def to_dict(self) -> dict[str, object]:
        """As our own layout keeps it."""


class Encoder(nn.Module, ABC):
    """An audio encoder of this package: everything that is ever asked of one."""

    kind: str
    """Name of the topology in our own layout."""
    config: EncoderConfig
    """Everything that shapes it."""

    @property
    @abstractmethod
    def sites(self) -> tuple[Site, ...]:
        """Every place that adds to the residual stream, in order of computation."""

    @property
    @abstractmethod
    def any_length(self) -> bool:
        """Whether a clip longer than the window is read whole."""

    @abstractmethod
    def block(self, site: Site) -> Block:
        """The block that a site lies in."""

    @abstractmethod
    def direct_path(self) -> DirectPath:
        """How each token reaches the pooled latent, norm statistics frozen; a `ModelError` where
        the latent is no mean of tokens."""

    @abstractmethod
    def window_grid(self, stage: int, n_tokens: int) -> Tensor:
        """[token, 2] time and frequency step of each token inside its attention window; −1 for a
        token with no place (CLS)."""

    @abstractmethod
    def time_frequency(self, stage: int, n_tokens: int) -> Tensor:
        """[token, 2] time and frequency step of each token in the clip, any fold undone; −1 for a
        token with no place. A `ModelError` where a token spans several times."""

    def token_places(self, encoded: Encoded) -> Tensor:
        """[token, 2] the same of the final tokens that a pass gave (`Encoded.tokens`)."""
        n_special = 0 if encoded.special is None else encoded.special.shape[1]
        last = max(site.stage for site in self.sites)
        places = self.time_frequency(last, encoded.tokens.shape[1] + n_special)
        return places[(places >= 0).all(1)]

    @abstractmethod
    def encode(
        self,
        features: Features | None,
        *,
        tap: Tap | None = None,
        edit: Edit | None = None,
        start: State | None = None,
    ) -> Encoded:
        """Run from the features, or from a saved state."""

    def output_projection(self, site: Site) -> tuple[Tensor, Tensor]:
        """The last matrix of a site [inner, width] and its bias [width], views of the weights.

        Attention: W_O, rows of head h from h · d_head on. MLP: the second layer.
        """
        return self.block(site).output_projection(site.kind)


def entrance(
    embed: Callable[[Features], Tensor], features: Features | None, start: State | None
) -> State:
    """Where a pass begins: at a saved state, or before the first block."""
    if start is not None:
        return start
    if features is None:
        raise InputError("encode needs features, or a state to start from")
    return State(0, embed(features))


def check_edit(edit: Edit, sites: tuple[Site, ...]) -> None:
    """Refuse an edit at a place that does not exist, rather than ignore it."""
    known = set(sites)
    for site, point in edit:
        if site not in known:
            raise InputError(f"no site {site} in this encoder; the first is {sites[0]}")
        if point not in ("raw", "out") or (point == "raw" and site.kind != "attention"):
            raise InputError(
                f"cannot edit '{point}' at {site}: use 'raw' (attention only) or 'out'"
            )


class States:
    """A tap that keeps the stream entering chosen blocks, ready to start from, and, if asked, what
    each site gave."""

    def __init__(self, sites: Sequence[Site], blocks: set[int], values: bool = False) -> None:
        self.points = frozenset({"heard", "stream"} | ({"raw", "out"} if values else set()))
        self._heard: Tensor | None = None
        attention = [site for site in sites if site.kind == "attention"]
        self._index = {site: i for i, site in enumerate(attention)}
        self._blocks = blocks
        self.states: dict[int, State] = {}
        self.values: dict[tuple[Site, str], Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if point == "heard":
            self._heard = value
        if not isinstance(where, Site):
            return
        if point != "stream":
            self.values[where, point] = value
        elif self._index[where] in self._blocks:
            block = self._index[where]
            self.states[block] = State(block, value, self._heard)
