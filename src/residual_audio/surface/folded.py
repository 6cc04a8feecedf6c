"""Gains folded into weights: an ordinary model that can be saved for any tool to open."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from residual_audio.errors import ModelError
from residual_audio.models.edited import EditedEncoder
from residual_audio.reweight.acting import gains_digest
from residual_audio.reweight.folded_checkpoint import (
    Folding,
    Layout,
    Wrapping,
    fold_copy,
    write_folded,
)
from residual_audio.reweight.gains import n_gains
from residual_audio.surface.given import GainsLike, ModelLike, given_gains, given_model
from residual_audio.surface.model import Model
from residual_audio.types import Gains, Result


class FoldedModel(Model):
    """A model of its own whose weights hold the gains; the one it was made from is untouched.

    >>> import tempfile, numpy as np, residual_audio as ra
    >>> spectrum = ra.Spectrum(np.zeros(12), np.eye(12), np.ones(12), 100)
    >>> gains = ra.Gains({"s3.b1.h0": np.full(12, 0.5)}, {"s3.b1.h0": spectrum})
    >>> folder = ra.fold("nano", gains).save(tempfile.mkdtemp() + "/adapted")
    >>> ra.load_model(str(folder)).joint_dim
    256
    """

    made: Folding
    """What was folded into what, and how well it was proved."""

    @property
    def gains(self) -> tuple[Gains, ...]:
        """As they were folded."""
        return self.made.gains

    @property
    def n_gains(self) -> int:
        return sum(n_gains(one) for one in self.gains)

    @property
    def difference(self) -> float:
        """Largest difference between embeddings of folded weights and of the edited pass."""
        return self.made.difference

    def save(
        self,
        out: str | Path,
        to: Layout = "native",
        *,
        results: Sequence[Result] = (),
        licence: str | None = None,
        heads: bool = False,
    ) -> Path:
        """Write a checkpoint with a card and what was folded into it.

        `native`, `hf`, `laion`, `onnx` (with `heads`, outputs of heads too), or `peft`: the gains
        alone as a LoRA adapter of the base. `results` go into the card with their intervals.
        """
        write_folded(self.made, to, Path(out), Wrapping(tuple(results), licence, heads))
        return Path(out)


def fold(
    model: ModelLike, gains: GainsLike | Sequence[GainsLike], amount: float = 1.0
) -> FoldedModel:
    """The model with network gains in its weights: no cost at run time.

    Proved on a dummy clip before it is handed out: folded weights give the embedding that the
    edited pass gives. Several gains are folded one after another. `amount` goes from 0 (none of
    them) to 1 (as they are).

    >>> import numpy as np, residual_audio as ra
    >>> model = ra.load_model("nano")
    >>> spectrum = ra.Spectrum(np.zeros(12), np.eye(12), np.ones(12), 100)
    >>> gains = ra.Gains({"s3.b1.h0": np.zeros(12)}, {"s3.b1.h0": spectrum})
    >>> folded = ra.fold(model, gains)
    >>> folded.difference < 1e-4
    True
    """
    given = given_model(model)
    if isinstance(given.encoder, EditedEncoder):
        raise ModelError(f"'{given.name}' is edited in every pass: fold into the model it is of")
    each = [gains] if isinstance(gains, Gains | str | Path) else gains
    made = fold_copy(given, [given_gains(one) for one in each], amount)
    digest = " ".join(gains_digest(one) for one in made.gains)
    folded = FoldedModel.twin(made.model)
    known = f"{given.sha256} folded {digest}"
    folded.sha256 = hashlib.sha256(known.encode()).hexdigest() if given.sha256 else ""
    folded.made = made
    folded.name = f"{given.name} + {folded.n_gains} gains folded {digest[:8]}"
    return folded
