"""The audio tower as ONNX: log-mel in, embedding (and head outputs) out, any number of clips.

What is written is compared with this package's own pass before it is called done.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from residual_audio.errors import MissingExtraError, ModelError
from residual_audio.files import replacing_folder
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.edited import EditedEncoder
from residual_audio.types import Site

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

FILE = "model.onnx"
FRONT_END = "front_end.json"
"""How samples become the log-mel that the graph reads."""
TOLERANCE = 1e-4
OPSET = 18


class Tower(nn.Module):
    """Log-mel [clip, frame, mel] → unit embedding; with `heads`, also the mean over tokens of each
    head's output before W_O, one [clip, head, d_head] an attention site."""

    def __init__(self, model: AudioTextModel, heads: bool) -> None:
        super().__init__()
        self.encoder, self.head, self.heads = model.encoder, model.head, heads
        self.attention = tuple(site for site in model.encoder.sites if site.kind == "attention")

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        tap = _Heads() if self.heads else None
        joint = self.head(self.encoder.encode(features, tap=tap))
        pooled = () if tap is None else tuple(tap.found[site] for site in self.attention)
        return (nn.functional.normalize(joint, dim=-1), *pooled)

    @property
    def outputs(self) -> list[str]:
        return ["embedding", *(str(site) for site in self.attention if self.heads)]


class _Heads:
    """A tap that keeps the mean over tokens."""

    points = frozenset({"raw"})

    def __init__(self) -> None:
        self.found: dict[Site, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if isinstance(where, Site):
            self.found[where] = value.mean(1)


def save(model: AudioTextModel, out: Path, heads: bool = False) -> float:
    """Write `model.onnx` and `front_end.json`; gives the largest difference to our own pass."""
    try:
        import onnx  # noqa: F401 - the exporter asks for it in the middle of its work
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", "Writing ONNX") from error
    if model.spec.codec is not None:
        raise ModelError(
            f"'{model.name}' hears through a codec of clips of any length, which a graph of fixed "
            "length has no place for. Use --to native."
        )
    if model.spec.fusion or isinstance(model.encoder, EditedEncoder):
        why = "fuses several views of long clips" if model.spec.fusion else "is edited in each pass"
        raise ModelError(f"'{model.name}' {why}: no single log-mel gives its embedding")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"'{out}' exists and is not an empty folder: nothing was written")
    tower = Tower(model, heads).eval()
    with replacing_folder(out) as work:
        _export(tower, _dummy(model, 2), work / FILE)
        session = onnxruntime.InferenceSession(str(work / FILE), providers=["CPUExecutionProvider"])
        difference = float(
            np.max([_difference(session, tower, _dummy(model, n)) for n in (1, 3)])
        )  # NaN where one is
        if not difference < TOLERANCE:
            raise ModelError(
                f"the ONNX graph of '{model.name}' differs from its own pass by {difference:.1e}: "
                "it was not written"
            )
        front_end = json.dumps(model.spec.to_dict(), indent=2)
        (work / FRONT_END).write_text(front_end + "\n", encoding="utf-8")
    return difference


def _export(tower: Tower, features: Tensor, path: Path) -> None:
    names = tower.outputs
    axes = {name: {0: "clip"} for name in ["features", *names]}
    with warnings.catch_warnings(), torch.enable_grad():  # torch's own layers, not fused ones
        warnings.simplefilter("ignore")  # of the tracer: shapes other than clips are fixed
        torch.onnx.export(
            tower,
            (features,),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=["features"],
            output_names=names,
            dynamic_axes=axes,
        )


@torch.no_grad()
def _difference(session: InferenceSession, tower: Tower, features: Tensor) -> float:
    """Relative to the scale of each output; of embeddings, whose length is 1, as they are."""
    found: list[Any] = session.run(None, {"features": features.numpy()})
    apart = [
        (torch.from_numpy(got) - want).abs().max() / want.abs().max().clamp(min=1.0)
        for got, want in zip(found, tower(features), strict=True)
    ]
    return float(torch.stack(apart).max())  # NaN where one is


def _dummy(model: AudioTextModel, n: int) -> Tensor:
    draw = torch.Generator().manual_seed(n)
    features = model.features(0.1 * torch.randn(n, model.spec.n_samples, generator=draw))
    if isinstance(features, tuple):
        raise ModelError(f"'{model.name}' reads more than one log-mel a clip")
    return features
