"""An encoder that does something else in every pass; the encoder it is made from stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from residual_audio.errors import ModelError
from residual_audio.models.block import Block
from residual_audio.models.direct_path import DirectPath
from residual_audio.models.encoder import Edit, Encoded, Encoder, Features, State, Tap
from residual_audio.types import Site


@dataclass(frozen=True)
class Pass:
    """What an encoder is asked for."""

    features: Features | None
    tap: Tap | None = None
    edit: Edit | None = None
    start: State | None = None

    def through(self, encoder: Encoder) -> Encoded:
        return encoder.encode(self.features, tap=self.tap, edit=self.edit, start=self.start)


class PassChange(Protocol):
    """What is done differently in a pass."""

    @property
    def label(self) -> str:
        """For the name of the model: `zero(s2.b5.h11)`."""

    @property
    def digest(self) -> str:
        """The same for the same change, on every machine; empty where that cannot be known."""

    @property
    def on_output(self) -> bool:
        """Whether the pooled latent is changed after the last block."""

    @property
    def sums_up(self) -> bool:
        """Whether the latent still is the sum of what the units add to it."""

    def run(self, encoder: Encoder, asked: Pass) -> Encoded:
        """The pass with the change in it; edits of the pass itself come after the change's own."""


@dataclass(frozen=True)
class SiteChange:
    """Functions at sites, and of the pooled latent."""

    label: str
    digest: str
    edit: Edit
    output: Callable[[Tensor], Tensor] | None = None

    @property
    def on_output(self) -> bool:
        return self.output is not None

    @property
    def sums_up(self) -> bool:
        # heads before W_O and whole MLPs are units of the sum; what follows W_O is not
        return self.output is None and all(
            point == "raw" or site.kind == "mlp" for site, point in self.edit
        )

    def run(self, encoder: Encoder, asked: Pass) -> Encoded:
        encoded = replace(asked, edit=both(self.edit, asked.edit or {})).through(encoder)
        if self.output is None:
            return encoded
        return replace(encoded, latent=self.output(encoded.latent))


def both(first: Edit, then: Edit) -> Edit:
    """Two edits, one after the other where they meet."""
    found = {**first, **then}
    for place in first.keys() & then.keys():
        found[place] = _chained(first[place], then[place])
    return found


def _chained(
    one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    return lambda x: other(one(x))


class EditedEncoder(Encoder):
    """An encoder with a change in every pass. Weights are those of the inner one, shared."""

    kind = "edited"

    def __init__(self, inner: Encoder, change: PassChange) -> None:
        super().__init__()
        self.inner = inner
        self.change = change
        self.config = inner.config
        self.training = inner.training

    @property
    def sites(self) -> tuple[Site, ...]:
        return self.inner.sites

    @property
    def any_length(self) -> bool:
        return self.inner.any_length

    def block(self, site: Site) -> Block:
        return self.inner.block(site)

    def direct_path(self) -> DirectPath:
        if not self.change.sums_up:
            raise ModelError(
                f"with {self.change.label} the latent is no sum of what heads and MLPs add to it: "
                "edit heads and MLPs alone, or ask the unedited model"
            )
        return self.inner.direct_path()

    def window_grid(self, stage: int, n_tokens: int) -> Tensor:
        return self.inner.window_grid(stage, n_tokens)

    def time_frequency(self, stage: int, n_tokens: int) -> Tensor:
        return self.inner.time_frequency(stage, n_tokens)

    def token_places(self, encoded: Encoded) -> Tensor:
        return self.inner.token_places(encoded)

    def encode(
        self,
        features: Features | None,
        *,
        tap: Tap | None = None,
        edit: Edit | None = None,
        start: State | None = None,
    ) -> Encoded:
        return self.change.run(self.inner, Pass(features, tap, edit, start))
