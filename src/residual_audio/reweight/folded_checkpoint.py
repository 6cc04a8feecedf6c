"""From a model and gains to a checkpoint on disk, proved before it is called done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch

from residual_audio import provenance
from residual_audio.errors import InputError, ModelError
from residual_audio.files import write_json
from residual_audio.models import native
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.writers import write_model
from residual_audio.reweight.fold import fold
from residual_audio.reweight.gains import blend, check_fits, n_gains
from residual_audio.reweight.network import NetworkGains
from residual_audio.types import Gains

TOLERANCE = 1e-4
RECORD = "residual_audio.json"
Layout = Literal["hf", "laion", "native"]


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it was proved."""

    model: str
    to: Layout
    out: str
    gains: int
    difference: float
    """Largest difference between embeddings of the folded and of the edited model."""


def export_folded(
    model: AudioTextModel,
    gains: Sequence[Gains],
    to: Layout,
    out: Path,
    *,
    amount: float = 1.0,
) -> Exported:
    """Fold the gains one after another into the model (in place) and write it.

    The folded weights must give the embedding that editing the forward pass gives, on a dummy clip;
    otherwise nothing is written.
    """
    scaled = [blend(g, amount) for g in gains]
    name, sha256 = model.name, model.sha256
    difference = fold_proved(model, scaled)
    write_folded(model, _Origin(name, sha256), scaled, to, out, amount)
    return Exported(model.name, to, str(out), sum(n_gains(g) for g in scaled), difference)


@dataclass(frozen=True)
class _Origin:
    name: str
    sha256: str


class Named(Protocol):
    """What a record says a model was made from."""

    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> str: ...


def fold_proved(model: AudioTextModel, gains: Sequence[Gains]) -> float:
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
        change = (torch.nn.functional.normalize(got) - torch.nn.functional.normalize(want)).abs()
        difference = max(difference, float(change.max()))
    if not difference < TOLERANCE:
        raise ModelError(f"folding changed the embedding by {difference:.1e} against editing")
    return difference


def write_folded(
    model: AudioTextModel,
    made_from: Named,
    gains: Sequence[Gains],
    to: Layout,
    out: Path,
    amount: float,
) -> None:
    """The checkpoint, with what was folded into it: in our layout inside, else in a file beside."""
    folded = {"gains": [{"n": n_gains(g), **dict(g.fitted_on)} for g in gains], "amount": amount}
    if to == "native":
        native.save(model, out, {"folded": provenance.plain(folded)})
        return
    write_model(model, out, to)
    record = {
        "folded": folded,
        "from": {"name": Path(made_from.name).name, "sha256": made_from.sha256},
        "written_by": provenance.collect(),
    }
    write_json(record_path(out), provenance.plain(record))


def record_path(out: Path) -> Path:
    """Where an export in a foreign layout says what was folded in: in its folder, or beside it."""
    return out / RECORD if out.is_dir() else out.with_name(f"{out.stem}.{RECORD}")


@torch.no_grad()
def _edited(model: AudioTextModel, gains: Gains | None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    waves = 0.1 * torch.randn(2, model.spec.n_samples, generator=generator)
    features = model.front_end(waves.to(model.device))
    if gains is None:
        return model.joint(model.encode(features))
    acting = NetworkGains(gains, model.encoder.sites)
    return model.joint(acting.output(model.encode(features, edit=acting.edit())))
