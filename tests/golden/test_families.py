"""Parity with the upstream code of every checkpoint family, on its own tensors.

`RESIDUAL_AUDIO_GOLDEN` names further folders of the same form; their families are discovered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_cases import assert_relative, discover, family_of
from heard import embed_audio
from safetensors.torch import load_file

from residual_audio.models import hf, laion, mga, msclap
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.htsat import HTSAT
from residual_audio.models.proof import prove
from residual_audio.types import Site

TOLERANCE = 1e-5
LOADERS = {"hf": hf, "laion": laion, "msclap2023": msclap, "mga": mga}
"""By what a family's name begins with: `laion_fusion` is LAION's too."""


def loader_of(family: str) -> Any:
    found = [name for name in LOADERS if family == name or family.startswith(f"{name}_")]
    return LOADERS[found[0]] if found else None


@pytest.fixture(
    scope="module",
    params=discover(lambda family: loader_of(family) is not None) or [None],
    ids=lambda p: p.name if p else "absent",
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    if request.param is None:
        pytest.skip("no golden tensors beside the project")
    return Case(request.param, tmp_path_factory.mktemp(request.param.name))


class Pools:
    """Token means of everything upstream recorded."""

    points = frozenset({"raw", "out", "stream", "end"})

    def __init__(self) -> None:
        self.values: dict[str, torch.Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: torch.Tensor) -> None:
        name = f"{point}.s{where}" if isinstance(where, int) else f"{point}.{where}"
        self.values[name] = value.mean(1)


class Case:
    """One family: its tensors, the loaded model and one tapped forward pass."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.family = family_of(folder)
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.io = load_file(folder / "io.safetensors")
        self.folder = folder
        self.model = self._load(folder, scratch)
        prove(self.model)
        self.tap = Pools()
        with torch.inference_mode():
            self.encoded = self.model.encode(self._features(), tap=self.tap)
            self.raw = self.model.joint(self.encoded)

    def _load(self, folder: Path, scratch: Path) -> AudioTextModel:
        loader = loader_of(self.family)
        if loader is hf:
            local = scratch / "hf"
            local.mkdir()
            (local / "config.json").write_text(json.dumps(self.config["hf_config"]))
            (local / "model.safetensors").write_bytes((folder / "weights.safetensors").read_bytes())
            return hf.load(str(local))
        checkpoints = sorted(folder.glob("checkpoint.*"))
        file = checkpoints[0] if checkpoints else folder / "weights.safetensors"
        text = self.config.get("text", {})
        heads = text.get("num_attention_heads", text.get("n_head"))
        return loader.load(str(file), text_heads=heads)

    def _features(self) -> Any:
        if not self.fused:
            return self.io["logmel"]
        short = self.io["logmel_short"].expand(4, -1, -1)
        return torch.stack([short, self.io["mel_fusion_long"]]), self.io["longer"].bool()

    @property
    def fused(self) -> bool:
        return "mel_fusion_long" in self.io

    def assert_close(self, name: str, ours: torch.Tensor) -> None:
        np.testing.assert_allclose(
            ours.detach().numpy(), self.io[name].numpy(), atol=TOLERANCE, rtol=0, err_msg=name
        )

    def assert_stream_close(self, name: str, ours: torch.Tensor) -> None:
        assert_relative(name, ours, self.io[name], TOLERANCE)


def test_pooled_heads_and_streams(case: Case) -> None:
    encoder = case.model.encoder
    assert isinstance(encoder, HTSAT)
    values = case.tap.values
    for site in encoder.sites:
        if site.kind == "attention":
            case.assert_close(f"head_outputs.s{site.stage}.b{site.block}", values[f"raw.{site}"])
    for stage in range(4):
        case.assert_stream_close(f"stream.s{stage}", values[f"end.s{stage}"])
    case.assert_stream_close("stream.embed", values["stream.s0.b0.attention"])


def test_latent_and_tokens(case: Case) -> None:
    case.assert_close("tokens_final", case.encoded.tokens)
    case.assert_close("latent", case.encoded.latent)
    if "tokens_final_value" in case.io:
        assert case.encoded.values is not None
        case.assert_close("tokens_final_value", case.encoded.values)


def test_audio_embedding(case: Case) -> None:
    case.assert_close("embedding_raw", case.raw)
    case.assert_close("embedding", torch.nn.functional.normalize(case.raw, dim=-1))


def test_audio_embedding_from_waveforms(case: Case) -> None:
    """Decode → window → front-end → encoder, against upstream's own embedding."""
    if case.fused:
        pytest.skip("upstream's chunks of long clips are random: see test_fusion_pieces")
    waves = [case.io[f"waveform.{i}"].float().numpy() / 32768 for i in range(2)]
    ours = embed_audio(case.model, waves, batch_size=2)
    np.testing.assert_allclose(ours, case.io["embedding"].numpy(), atol=2e-5)


def test_fusion_pieces(case: Case) -> None:
    if not case.fused:
        pytest.skip("only for fusion")
    short = case.io["logmel_short"].expand(1, 4, -1, -1)
    with torch.inference_mode():
        raw = case.model.joint(case.model.encode((short, torch.tensor([True]))))
    forced = torch.nn.functional.normalize(raw, dim=-1)
    case.assert_close("embedding_short_forced_longer", forced)


def test_text_embedding(case: Case) -> None:
    if case.model.text is None:
        assert "text_embedding" not in case.io
        return
    tokens = {
        name: case.io[name].long()
        for name in ("input_ids", "attention_mask", "special_tokens_mask")
        if name in case.io
    }
    with torch.inference_mode():
        raw = case.model.text.encode(**tokens)
    case.assert_close("text_embedding_raw", raw)
    case.assert_close("text_embedding", torch.nn.functional.normalize(raw, dim=-1))


def test_similarity_scale(case: Case) -> None:
    if "similarity_logits" not in case.io:
        pytest.skip("only Microsoft's wrapper returns logits")
    cosine = case.io["embedding"] @ case.io["text_embedding"].T
    np.testing.assert_allclose(
        case.model.logit_scale * cosine, case.io["similarity_logits"], rtol=1e-4, atol=1e-4
    )
