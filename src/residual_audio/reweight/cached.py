"""Training inside the network from saved states: only blocks from the first edited one on run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.encoder import Edit, Encoded, Features, State, States
from residual_audio.passes.kept import Audio, Batches, Passes
from residual_audio.passes.lengths import Rows
from residual_audio.reweight.descent import ClipNumbers, Embed

# states of more than this are not kept: the passes start from the features instead
MAX_BYTES = 4_000_000_000


class Adapter(Protocol):
    """Something trainable that edits a forward pass: gains, or low-rank updates."""

    @property
    def first_block(self) -> int: ...

    def edit(self) -> Edit: ...

    def output(self, encoded: Encoded) -> Encoded: ...


class Entrances:
    """Every clip's stream where it enters block `block`, ready for the rest of the network."""

    def __init__(self, block: int, tokens: Rows) -> None:
        self.block = block
        self.tokens = tokens

    @classmethod
    @torch.no_grad()
    def record(
        cls, model: Audio, batches: Batches, n_clips: int, block: int, max_bytes: int = MAX_BYTES
    ) -> Entrances:
        """One ordinary pass over the clips; batches carry clip numbers below `n_clips`."""
        n_blocks = sum(site.kind == "attention" for site in model.encoder.sites)

        def parts() -> Iterator[tuple[Tensor, Features]]:
            for clips, features in batches:
                tap = States(model.encoder.sites, {block})
                encoded = model.encoder.encode(features, tap=tap)
                yield clips, encoded.latent if block >= n_blocks else _kept(tap.states[block])

        return cls(block, Rows.collect(parts(), n_clips, max_bytes))

    def embed(self, model: Audio, adapter: Adapter) -> Embed:
        """Clip numbers → joint embeddings with the adapter in place."""
        if adapter.first_block < self.block:
            raise InputError(
                f"the adapter edits block {adapter.first_block}, but the saved states enter "
                f"block {self.block}"
            )
        n_blocks = sum(site.kind == "attention" for site in model.encoder.sites)

        def go_on(kept: Features) -> Tensor:
            tokens, heard = kept if isinstance(kept, tuple) else (kept, None)
            if self.block >= n_blocks:
                encoded = Encoded(tokens, tokens[:, None])
            else:
                state = State(self.block, tokens, heard)
                encoded = model.encoder.encode(None, edit=adapter.edit(), start=state)
            return model.joint(adapter.output(encoded))

        def run(clips: ClipNumbers) -> Tensor:
            return self.tokens.run(clips, go_on)

        return run


def _kept(state: State) -> Features:
    return state.tokens if state.heard is None else (state.tokens, state.heard)


def embed_from_features(model: Audio, adapter: Adapter, features: Rows) -> Embed:
    """The same without saved states: every pass starts from the features."""

    def go_on(some: Features) -> Tensor:
        return model.joint(adapter.output(model.encoder.encode(some, edit=adapter.edit())))

    def run(clips: ClipNumbers) -> Tensor:
        return features.run(clips, go_on)

    return run


@dataclass(frozen=True)
class Streams:
    """Clips to run again and again, with the streams that enter blocks kept for the next time."""

    passes: Passes
    _entrances: dict[int, Entrances] = field(default_factory=dict, repr=False)

    def entrances(self, block: int) -> Entrances:
        """Every clip's stream entering a block."""
        if block not in self._entrances:
            passes = self.passes
            found = Entrances.record(passes.model, passes.batches(), len(passes), block)
            self._entrances[block] = found
        return self._entrances[block]

    def embed(self, adapter: Adapter) -> Embed:
        """Joint embeddings with the adapter in place, from the first block that it edits on."""
        return self.entrances(adapter.first_block).embed(self.passes.model, adapter)

    def embed_whole(self, adapter: Adapter) -> Embed:
        """The same from the features on, for what changes every block."""
        return embed_from_features(self.passes.model, adapter, self.passes.features)
