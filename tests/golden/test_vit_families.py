"""Parity of the ViT families (M2D-CLAP, AST) with upstream, on its own tensors.

`RESIDUAL_AUDIO_GOLDEN` names another folder of the same form; its families are discovered.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_cases import assert_relative, discover, family_of
from heard import embed_audio
from safetensors.torch import load_file
from torch import Tensor

from residual_audio.models import ast, m2d
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Encoded
from residual_audio.models.joint import Semantic
from residual_audio.models.proof import prove
from residual_audio.models.vit import ViT
from residual_audio.types import Site

TOLERANCE = 1e-5
FAMILIES = ("ast", "m2d")
"""What a name begins with."""


@pytest.fixture(
    scope="module",
    params=discover(lambda family: family.split("_")[0] in FAMILIES) or [None],
    ids=lambda p: p.name if p else "absent",
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    if request.param is None:
        pytest.skip("no golden tensors beside the project")
    return Case(request.param, tmp_path_factory.mktemp(request.param.name))


class Whole:
    """Keeps every tapped value, all tokens of it."""

    points = frozenset({"raw", "stream", "end"})

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        self.values[point if isinstance(where, int) else f"{point}.b{where.block}"] = value

    def after(self, block: int, depth: int) -> Tensor:
        """The stream that leaves a block."""
        return self.values["end" if block + 1 == depth else f"stream.b{block + 1}"]


class Run:
    """One clip through the encoder."""

    def __init__(self, model: AudioTextModel, features: Tensor) -> None:
        self.tap = Whole()
        with torch.inference_mode():
            self.encoded: Encoded = model.encode(features, tap=self.tap)
            self.raw = model.joint(self.encoded)


class Case:
    """One family: its tensors, the loaded model and every clip run through it."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.family = family_of(folder).partition("_")[0]
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.io = load_file(folder / "io.safetensors")
        self.model = self._load(folder, scratch)
        prove(self.model)
        encoder = self.model.encoder
        assert isinstance(encoder, ViT)
        self.encoder = encoder
        self.runs = [Run(self.model, x) for x in self._features()]

    def _load(self, folder: Path, scratch: Path) -> AudioTextModel:
        if self.family == "ast":
            (scratch / "config.json").write_text(json.dumps(self.config["hf_config"]))
            shutil.copy(folder / "weights.safetensors", scratch / "model.safetensors")
            return ast.load(str(scratch))
        local = scratch / self.config["real_folder_name"]
        local.mkdir()
        shutil.copy(folder / "checkpoint.pth", local / "checkpoint-30.pth")
        text = self.config["text"]
        if not text["in_checkpoint"]:
            (local / "text_encoder").mkdir()
            sizes = {key: value for key, value in text.items() if isinstance(value, int)}
            bert = {"model_type": "bert", "layer_norm_eps": text["layer_norm_eps"], **sizes}
            (local / "text_encoder" / "config.json").write_text(json.dumps(bert))
            shutil.copy(
                folder / "text_encoder.safetensors", local / "text_encoder" / "model.safetensors"
            )
        return m2d.load(str(local), text_heads=text["num_attention_heads"])

    @property
    def waves(self) -> list[Any]:
        count = sum(key.startswith("waveform.") for key in self.io)
        return [self.io[f"waveform.{i}"].float().numpy() / 32768 for i in range(count)]

    def _features(self) -> list[Tensor]:
        count = sum(key.startswith("waveform.") for key in self.io)
        logmels = [self.io[f"logmel.{i}"] for i in range(count)]
        spec = self.model.spec
        if self.family == "ast":
            pad = float(self.io["logmel_pad_value"])
            whole = [torch.full((spec.n_frames or 0, spec.n_mels), pad) for _ in logmels]
            for room, logmel in zip(whole, logmels, strict=True):
                room[: len(logmel)] = logmel
            return [x[None] for x in whole]
        assert spec.mean is not None
        assert spec.std is not None
        return [((x.T - spec.mean) / spec.std)[None] for x in logmels]

    def assert_close(self, name: str, ours: Tensor) -> None:
        np.testing.assert_allclose(
            ours.detach().numpy(), self.io[name].numpy(), atol=TOLERANCE, rtol=0, err_msg=name
        )

    def assert_stream_close(self, name: str, ours: Tensor) -> None:
        assert_relative(name, ours, self.io[name], TOLERANCE)

    def assert_streams_close(self, prefix: str, rows: list[tuple[Whole, int]]) -> None:
        """Rows of upstream's tensors, each a chunk of a run: heads and streams of every block."""
        layout, depth = self.encoder.layout, self.encoder.config.depth

        def chunk(value: Tensor, i: int) -> Tensor:
            return value.split(layout.chunks(value.shape[1]), 1)[i]

        for block in range(depth):
            heads = [chunk(tap.values[f"raw.b{block}"], i) for tap, i in rows]
            streams = [chunk(tap.after(block, depth), i) for tap, i in rows]
            here = f"s0.b{block}"
            patches = torch.cat([layout.patches(x).mean(1) for x in heads])
            self.assert_close(f"{prefix}head_outputs.{here}", patches)
            self.assert_close(
                f"{prefix}head_outputs_all.{here}", torch.cat([x.mean(1) for x in heads])
            )
            patches = torch.cat([layout.patches(x).mean(1) for x in streams])
            self.assert_stream_close(f"{prefix}stream_block.{here}", patches)
            if self.family != "ast":  # recorded for M2D alone
                cls = torch.cat([x[:, 0] for x in streams])
                self.assert_stream_close(f"{prefix}stream_block_cls.{here}", cls)
        ends = [layout.patches(chunk(tap.values["end"], i)).mean(1) for tap, i in rows]
        self.assert_stream_close(f"{prefix}stream.s0", torch.cat(ends))


def test_heads_and_streams_of_every_block(case: Case) -> None:
    case.assert_streams_close("", [(run.tap, 0) for run in case.runs[:2]])


def test_heads_and_streams_of_every_chunk_of_a_long_clip(case: Case) -> None:
    long = [i for i in range(len(case.runs)) if f"chunks.{i}.stream.s0" in case.io]
    if not long:
        pytest.skip(f"no clip of {case.family} is longer than its window")
    for i in long:
        n_chunks = len(case.io[f"chunks.{i}.stream.s0"])
        case.assert_streams_close(
            f"chunks.{i}.", [(case.runs[i].tap, chunk) for chunk in range(n_chunks)]
        )


def test_final_tokens(case: Case) -> None:
    for i, run in enumerate(case.runs):
        assert run.encoded.special is not None
        if case.family == "ast":
            ours = torch.cat([run.encoded.special, run.encoded.tokens], 1)
            theirs = case.io["tokens_final"][i]
            torch.testing.assert_close(ours[0, : len(theirs)], theirs, atol=TOLERANCE, rtol=0)
            mean = case.io["tokens_final_mean"][i]
            torch.testing.assert_close(ours.mean(1)[0], mean, atol=TOLERANCE, rtol=0)
            continue
        theirs = case.io[f"tokens_final.{i}"][None]
        layout = case.encoder.layout
        for ours, wanted in (
            (run.encoded.special, layout.special(theirs)),
            (run.encoded.tokens, layout.patches(theirs)),
        ):
            torch.testing.assert_close(ours, wanted, atol=TOLERANCE, rtol=0)


def test_latent_and_embedding(case: Case) -> None:
    case.assert_close("latent", torch.cat([run.encoded.latent for run in case.runs]))
    if "embedding_raw" not in case.io:
        assert case.family == "ast"  # audio only: the latent is the embedding
        return
    raw = torch.cat([run.raw for run in case.runs])
    case.assert_close("embedding_raw", raw)
    case.assert_close("embedding", torch.nn.functional.normalize(raw, dim=-1))


def test_semantic_token(case: Case) -> None:
    if "sem_head_output_semtoken" not in case.io:
        pytest.skip("only M2D-CLAP 2025 has a semantic token")
    head = case.model.head
    assert isinstance(head, Semantic)
    found = []
    for run in case.runs:
        tap = Whole()
        head.read(run.encoded.tokens, tap)
        found.append(tap.values["raw.b0"][:, 0])
    case.assert_close("sem_head_output_semtoken", torch.cat(found))


@pytest.mark.parametrize("batch_size", [1, 8])
def test_from_waveforms(case: Case, batch_size: int) -> None:
    """Decode → window → front-end → encoder, against upstream's own embedding."""
    ours = embed_audio(case.model, case.waves, batch_size=batch_size)
    theirs = case.io.get("embedding")
    if theirs is None:
        theirs = torch.nn.functional.normalize(case.io["latent"], dim=-1)
    np.testing.assert_allclose(ours, theirs.numpy(), atol=TOLERANCE)


def test_padded_waveform(case: Case) -> None:
    if "embedding_padded10s.0" not in case.io:
        pytest.skip("M2D's notebooks pad to 10 s, AST's extractor does so by itself")
    wave = np.zeros(160_000, np.float32)
    wave[: len(case.waves[0])] = case.waves[0]
    ours = embed_audio(case.model, [wave])
    theirs = torch.nn.functional.normalize(case.io["embedding_padded10s.0"], dim=-1)
    np.testing.assert_allclose(ours, theirs.numpy(), atol=TOLERANCE)


def test_text_embedding(case: Case) -> None:
    if case.model.text is None:
        assert "text_embedding" not in case.io
        return
    with torch.inference_mode():
        raw = case.model.text.encode(case.io["input_ids"], case.io["attention_mask"])
    case.assert_close("text_embedding_raw", raw)
    case.assert_close("text_embedding", torch.nn.functional.normalize(raw, dim=-1))
