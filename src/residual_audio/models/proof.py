"""What a model must show before it is used: it runs, and its parts add up."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Encoder
from residual_audio.models.text import NoTextError
from residual_audio.types import Site

TEXTS = ("a dog barks", "heavy rain on a tin roof")


class _HeadSums:
    """Checks at every attention site that the heads, through W_O, sum to what the site adds."""

    points = frozenset({"raw", "out"})

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.raw: Tensor | None = None
        self.worst: tuple[float, Site | int | None] = (0.0, None)

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if not isinstance(where, Site) or where.kind != "attention":
            return
        if point == "raw":
            self.raw = value
            return
        assert self.raw is not None
        weight, bias = self.encoder.output_projection(where)
        heads = weight.unflatten(0, (where.n_heads, where.d_head))
        total = torch.einsum("cthd,hdw->ctw", self.raw, heads) + bias
        error = float((total - value).abs().max() / value.abs().max().clamp(min=1e-12))
        if not error <= self.worst[0]:
            self.worst = (error, where)


@torch.inference_mode()
def prove(model: AudioTextModel) -> None:
    """Run a dummy clip and two texts once: shapes, finite values, heads sum to the attention
    output, different texts have different vectors."""
    _prove_audio(model)
    if model.text is not None:
        _prove_text(model)


def _prove_audio(model: AudioTextModel) -> None:
    waves = torch.randn(1, model.spec.n_samples, generator=torch.Generator().manual_seed(0)) * 0.1
    tap = _HeadSums(model.encoder)
    try:
        encoded = model.encode(model.front_end(waves.to(model.device)), tap=tap)
        joint = model.joint(encoded)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ModelError(f"'{model.name}' does not run on a dummy clip: {error}") from error
    if joint.ndim != 2 or len(joint) != 1:
        raise ModelError(
            f"'{model.name}' gave an embedding of shape {tuple(joint.shape)} for a clip"
        )
    if not bool(torch.isfinite(joint).all()):
        raise ModelError(f"'{model.name}' gives values that are not finite for a dummy clip")
    if not tap.worst[0] < 1e-3:
        raise ModelError(
            f"'{model.name}': heads do not sum to the attention output at {tap.worst[1]} "
            f"(relative error {tap.worst[0]:.1e})"
        )


def _prove_text(model: AudioTextModel) -> None:
    try:
        first, second = model.embed_text(TEXTS)
    except NoTextError:  # said to whoever asks for a text; sounds can be embedded without
        return
    except (RuntimeError, ValueError, IndexError) as error:
        raise ModelError(f"'{model.name}' does not run on a text: {error}") from error
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ModelError(f"'{model.name}' gives values that are not finite for a text")
    if np.abs(first - second).max() < 1e-6:
        raise ModelError(
            f"'{model.name}' gives the same vector for {TEXTS[0]!r} and {TEXTS[1]!r}: its text "
            "tower or tokenizer is damaged"
        )
