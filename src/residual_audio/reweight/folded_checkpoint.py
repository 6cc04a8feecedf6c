"""From a model and gains to a checkpoint on disk, proved before it is called done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from residual_audio import provenance
from residual_audio.errors import InputError, ModelError
from residual_audio.files import write_json
from residual_audio.models import native, onnx_tower
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.layouts import write_model
from residual_audio.models.model_card import CARD, RECORD, CardFacts, beside, write_card
from residual_audio.models.model_names import base_of, licence_of
from residual_audio.models.peft_adapter import LowRankUpdate, Place, save_adapter
from residual_audio.reweight.acting import gains_label
from residual_audio.reweight.fold import fold
from residual_audio.reweight.gains import blend, check_fits, n_gains
from residual_audio.reweight.low_rank_form import apply_updates, low_rank_form
from residual_audio.reweight.network import NetworkGains
from residual_audio.types import Gains, Result

TOLERANCE = 1e-4
Layout = Literal["hf", "laion", "native", "peft", "onnx"]


@dataclass(frozen=True)
class Folding:
    """A model with gains in its weights, proved, and what it was made from."""

    model: AudioTextModel
    """Weights of its own; name and digest are those of the model before."""
    base: AudioTextModel
    """Untouched."""
    gains: tuple[Gains, ...]
    """As they were folded: times the amount."""
    amount: float
    difference: float
    """Largest difference between embeddings of the folded weights and of the edited pass."""


@dataclass(frozen=True)
class Wrapping:
    """What goes with a checkpoint that is handed out."""

    results: tuple[Result, ...] = ()
    """Scores for its card."""
    licence: str | None = None
    """None: what the card of the base says."""
    heads: bool = False
    """In ONNX: outputs of the heads too."""


NOTHING_WITH_IT = Wrapping()


def fold_copy(base: AudioTextModel, gains: Sequence[Gains], amount: float = 1.0) -> Folding:
    """Gains, one after another, in the weights of a copy."""
    scaled = tuple(blend(each, amount) for each in gains)
    model = AudioTextModel.copy_of(base)
    return Folding(model, base, scaled, amount, _fold_proved(model, scaled))


def _fold_proved(model: AudioTextModel, gains: Sequence[Gains]) -> float:
    """Fold the gains one after another into the model, in place.

    Gives the largest difference between embeddings of the folded weights and of the edited pass on
    dummy clips; one that is not small is an error.
    """
    if any(each.path == "direct" for each in gains):
        raise InputError(
            "gains of the direct path act on contributions to the latent, which no weight of the "
            "encoder stands for: they cannot be folded. Fit them inside the network instead, "
            "`residual-audio reweight fit RUN --path network --out GAINS`, and export those; or "
            "apply these as they are with --gains (`classify`, `embed`, `evaluate`)"
        )
    latent = int(model.head.config.get("d_in", 0))
    for each in gains:
        check_fits(each, model.encoder.sites, latent, model.sha256)
    difference = 0.0
    for each in gains:
        want = _edited(model, each)
        fold(model, each)
        got = _edited(model, None)
        # proved one by one: the larger of 0 and NaN would be 0
        difference = max(difference, _checked(_apart(got, want)))
    return difference


def _apart(got: torch.Tensor, want: torch.Tensor) -> float:
    return float(
        (torch.nn.functional.normalize(got) - torch.nn.functional.normalize(want)).abs().max()
    )


def _checked(difference: float) -> float:
    if not difference < TOLERANCE:
        if math.isnan(difference):
            raise ModelError("with these gains embeddings are not finite: they are too large")
        raise ModelError(f"folding changed the embedding by {difference:.1e} against editing")
    return difference


def write_folded(
    made: Folding, to: Layout, out: Path, wrapping: Wrapping = NOTHING_WITH_IT
) -> None:
    """The checkpoint (for PEFT the gains alone, as updates of the base), a record and a card."""
    _refuse_of_others(made, wrapping.results)
    model, base = made.model, made.base
    folded: dict[str, object] = {
        "gains": [{"n": n_gains(g), **dict(g.fitted_on)} for g in made.gains],
        "amount": made.amount,
    }
    if to == "native":
        native.save(model, out, {"folded": provenance.plain(folded)})
    elif to == "peft":
        save_adapter(base, _updates_proved(made), out, base_of(base.name))
    elif to == "onnx":
        onnx_tower.save(model, out, wrapping.heads)
    else:
        write_model(model, out, to)
    record = {
        "folded": folded,
        "from": {"name": Path(base.name).name, "sha256": base.sha256},
        "written_by": provenance.collect(),
    }
    write_json(record_path(out), provenance.plain(record))
    write_card(_facts(made, to, out, wrapping), beside(out, CARD))


def _refuse_of_others(made: Folding, results: Sequence[Result]) -> None:
    """A card says of a checkpoint only what was measured with it."""
    known = {gains_label(each) for each in made.gains}
    for result in results:
        base, _, change = result.model.partition(" + ")
        if base_of(base) != base_of(made.base.name):
            why = f"not about {made.base.name}"
        elif change and not set(change.split(" + ")) <= known:
            why = f"not about {' + '.join(sorted(known))}"
        elif not change and not result.task.startswith("adapt"):
            why = f"{made.base.name} without these gains; evaluate it with --gains"
        else:
            continue
        raise InputError(
            f"the result of '{result.task}' on {result.dataset} is about '{result.model}', {why}: "
            "it does not go into the card"
        )


def _updates_proved(made: Folding) -> dict[Place, LowRankUpdate]:
    """The same gains as low-rank updates, which must give what the folded weights give."""
    updates = low_rank_form(made.base, made.gains)
    updated = AudioTextModel.copy_of(made.base)
    apply_updates(updated, updates)
    _checked(_apart(_edited(updated, None), _edited(made.model, None)))
    return updates


def _facts(made: Folding, to: Layout, out: Path, wrapping: Wrapping) -> CardFacts:
    known = [dict(g.fitted_on).get("dataset", {}) for g in made.gains]
    n, base = sum(n_gains(g) for g in made.gains), base_of(made.base.name)
    return CardFacts(
        name=out.name,
        base=base,
        layout=to,
        change=f"{base} with {n:,} gains on principal components of its heads (ResiDual).",
        licence=wrapping.licence or licence_of(made.base.name),
        has_text=made.model.text is not None,
        datasets=tuple(dict.fromkeys(str(d["name"]) for d in known if "name" in d)),
        results=wrapping.results,
    )


def exported_files(out: Path) -> dict[str, Path]:
    """What an export consists of, by the name that it has in a repository."""
    if out.is_dir():
        return {
            path.relative_to(out).as_posix(): path
            for path in sorted(out.rglob("*"))
            if path.is_file()
        }
    return {out.name: out, RECORD: record_path(out), CARD: beside(out, CARD)}


def record_path(out: Path) -> Path:
    """Where an export in a foreign layout says what was folded in: in its folder, or beside it."""
    return beside(out, RECORD)


@torch.no_grad()
def _edited(model: AudioTextModel, gains: Gains | None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    waves = 0.1 * torch.randn(2, model.spec.n_samples, generator=generator)
    features = model.front_end(waves.to(model.device))
    if gains is None:
        return model.joint(model.encode(features))
    acting = NetworkGains(gains, model.encoder.sites)
    return model.joint(acting.output(model.encode(features, edit=acting.edit())))
