"""From a model and what was trained on top of it to a checkpoint on disk with its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from residual_audio import provenance
from residual_audio.errors import InputError
from residual_audio.files import write_json
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.layouts import write_model
from residual_audio.models.model_card import CARD, CardFacts, beside, write_card
from residual_audio.models.model_names import base_of, licence_of
from residual_audio.models.peft_adapter import LowRankUpdate, Place, save_adapter
from residual_audio.reweight.folded_checkpoint import (
    Layout,
    Wrapping,
    fold_copy,
    record_path,
    write_folded,
)
from residual_audio.reweight.low_rank_form import apply_updates
from residual_audio.types import Gains

NO_ADAPTER = (
    "trained weights are no low-rank update: write them with --to hf, laion or native, or adapt by "
    "residual or lora"
)


@dataclass(frozen=True)
class LeftBehind:
    """What training leaves: gains, low-rank updates, or new values of weights."""

    gains: Gains | None = None
    updates: Mapping[Place, LowRankUpdate] = field(default_factory=dict)
    weights: Sequence[tuple[Tensor, Tensor]] = ()
    """Parameters of the model that was trained, and what became of them."""


@torch.no_grad()
def write_trained(
    model: AudioTextModel, left: LeftBehind, to: Layout, out: Path, wrapping: Wrapping
) -> None:
    """Write the model with it; for PEFT low-rank updates alone. Trained weights are put into the
    model that was given, in place: it is theirs already."""
    if left.gains is not None:
        write_folded(fold_copy(model, [left.gains]), to, out, wrapping)
        return
    if to == "peft" and not left.updates:
        raise InputError(NO_ADAPTER)
    name, sha256 = model.name, model.sha256
    apply_updates(model, left.updates)
    for parameter, value in left.weights:
        parameter.copy_(value)
    if to == "peft":
        save_adapter(model, left.updates, out, base_of(name))
    else:
        write_model(model, out, to)
    n = sum(u.down.size + u.up.size for u in left.updates.values())
    n += sum(value.numel() for _, value in left.weights)
    record = {
        "trained": {"numbers": n, "low_rank": bool(left.updates)},
        "from": {"name": Path(name).name, "sha256": sha256},
        "scores": [[repr(score) for score in result.scores] for result in wrapping.results],
        "written_by": provenance.collect(),
    }
    write_json(record_path(out), provenance.plain(record))
    kind = "low-rank updates of W_O" if left.updates else "fine-tuned weights"
    facts = CardFacts(
        name=out.name,
        base=base_of(name),
        layout=to,
        change=f"{base_of(name)} with {n:,} trained numbers ({kind}).",
        licence=wrapping.licence or licence_of(name),
        has_text=model.text is not None,
        datasets=tuple(dict.fromkeys(result.dataset for result in wrapping.results)),
        results=wrapping.results,
    )
    write_card(facts, beside(out, CARD))
