"""Parity with open_clip's own code: every tensor that was recorded, whatever the variant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_cases import assert_relative, discover
from heard import embed_audio
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import normalize

from residual_audio.audio.frontend import LogMel
from residual_audio.models import native, openclip
from residual_audio.models.proof import prove
from residual_audio.models.text_clip import ClipText
from residual_audio.models.vit import ViT
from residual_audio.types import Site

TOLERANCE = 1e-5


class Pools:
    """Token means of everything upstream recorded."""

    points = frozenset({"raw", "stream", "end"})

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        name = f"{point}.s{where}" if isinstance(where, int) else f"{point}.{where}"
        self.values[name] = value.mean(1)


class Case:
    """One model: its tensors, the loaded model and one tapped forward pass."""

    def __init__(self, folder: Path) -> None:
        self.io = load_file(folder / "io.safetensors")
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.model = openclip.load(str(folder / "weights.safetensors"))
        prove(self.model)
        self.is_whisper = isinstance(self.model.encoder, ViT)
        self.features = self._features()
        self.tap = Pools()
        with torch.inference_mode():
            self.encoded = self.model.encode(self.features, tap=self.tap)
            self.raw = self.model.joint(self.encoded)

    def _features(self) -> Any:
        if self.model.spec.fusion:
            return self.io["mel_fusion"], self.io["longer"].bool()
        logmel = self.io["logmel"]  # Whisper's has its mels before its frames
        return logmel.transpose(1, 2) if self.is_whisper else logmel

    @property
    def waves(self) -> list[np.ndarray]:
        count = sum(key.startswith("waveform.") for key in self.io)
        return [self.io[f"waveform.{i}"].float().numpy() / 32768 for i in range(count)]

    def close(self, name: str, ours: Tensor) -> None:
        np.testing.assert_allclose(
            ours.detach().numpy(), self.io[name].numpy(), atol=TOLERANCE, rtol=0, err_msg=name
        )


@pytest.fixture(
    scope="module",
    params=discover(lambda family: family.startswith("openclip")) or [None],
    ids=lambda p: p.name if p else "absent",
)
def case(request: pytest.FixtureRequest) -> Case:
    if request.param is None:
        pytest.skip("no golden tensors beside the project")
    return Case(request.param)


def test_heads_and_streams(case: Case) -> None:
    values, blocks = case.tap.values, [s for s in case.model.encoder.sites if s.kind == "attention"]
    for i, site in enumerate(blocks):
        here = f"s{site.stage}.b{site.block}"
        case.close(f"head_outputs.{here}", values[f"raw.{site}"])
        after = blocks[i + 1] if i + 1 < len(blocks) else None
        last = after is None or after.stage != site.stage
        left = values[f"end.s{site.stage}" if last else f"stream.{after}"]
        assert_relative(here, left, case.io[f"stream_block.{here}"], TOLERANCE)
        if last:
            assert_relative(here, left, case.io[f"stream.s{site.stage}"], TOLERANCE)
    entering = values[f"stream.{blocks[0]}"]
    assert_relative("embed", entering, case.io["stream.embed"], TOLERANCE)


def test_tokens_latent_and_embedding(case: Case) -> None:
    assert_relative("tokens", case.encoded.tokens, case.io["tokens_final"], TOLERANCE)
    before = "latent_before_encoder_proj"  # Whisper's latent is projected twice upstream
    case.close(before if before in case.io else "latent", case.encoded.latent)
    case.close("embedding_raw", case.raw)
    case.close("embedding", normalize(case.raw, dim=-1))


def test_log_mel(case: Case) -> None:
    model = case.model
    if model.spec.fusion:
        pytest.skip("upstream's global part of a long clip is random")
    windows = torch.from_numpy(np.concatenate([model.windows(wave) for wave in case.waves]))
    tolerance = 1e-4 if case.is_whisper else 0.02
    np.testing.assert_allclose(model.features(windows), case.features, atol=tolerance, rtol=0)
    # the filters in the file are those that its config asks for
    np.testing.assert_allclose(
        LogMel(model.spec).filters.numpy(), model.front_end.filters.numpy(), atol=1e-7
    )


@pytest.mark.parametrize("batch_size", [1, 8])
def test_embedding_from_waveforms_does_not_depend_on_the_batch(case: Case, batch_size: int) -> None:
    if case.model.spec.fusion:
        pytest.skip("upstream's global part of a long clip is random")
    ours = embed_audio(case.model, case.waves, batch_size=batch_size)
    np.testing.assert_allclose(ours, case.io["embedding"].numpy(), atol=2e-5)


def test_text(case: Case) -> None:
    text = case.model.text
    ids, mask = case.io["input_ids"].long(), case.io["attention_mask"].long()
    with torch.inference_mode():
        raw = text.encode(ids, attention_mask=mask)
        if isinstance(text, ClipText):
            case.close("text_latent", text.pooled(ids))
    case.close("text_embedding_raw", raw)
    case.close("text_embedding", normalize(raw, dim=-1))
    cosine = case.io["embedding"] @ case.io["text_embedding"].T
    logits = case.model.logit_scale * cosine
    bias = case.io.get("logit_bias", torch.zeros(()))
    np.testing.assert_allclose(logits + bias, case.io["similarity_logits"], rtol=1e-4, atol=1e-4)


def test_our_own_layout_keeps_it(case: Case, tmp_path: Path) -> None:
    native.save(case.model, tmp_path / "model")
    again = native.load(tmp_path / "model")
    with torch.inference_mode():
        encoded = again.encode(case.features)
        raw = again.text.encode(
            case.io["input_ids"].long(), attention_mask=case.io["attention_mask"].long()
        )
        case.close("embedding_raw", again.joint(encoded))
    case.close("text_embedding_raw", raw)
