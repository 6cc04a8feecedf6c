"""Opening M2D-CLAP: sizes from names and tensors, text encoders, and what must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from heard import embed_audio
from m2d_checkpoints import (
    NAME_2024,
    NAME_2025,
    backbone,
    bert,
    put,
    put_text,
    state_2024,
    state_2025,
)

from residual_audio.errors import ModelError
from residual_audio.models import m2d
from residual_audio.models.registry import load_model
from residual_audio.models.text import MissingText
from residual_audio.models.vit import ViT


@pytest.fixture(scope="module")
def waves() -> list[np.ndarray]:
    """Short, exact, long and 1-sample clips at 16 kHz."""
    draw = np.random.default_rng(0)
    return [0.1 * draw.standard_normal(n).astype(np.float32) for n in (4000, 16_000, 40_000, 1)]


def test_m2d_reads_norm_stats_and_sizes(tmp_path: Path) -> None:
    old = m2d.load(str(put(tmp_path, NAME_2024, state_2024())))
    new = m2d.load(str(put(tmp_path, NAME_2025, state_2025())), text_heads=2)
    assert (old.spec.mean, old.spec.std) == (-7.1, 4.2)
    assert (new.spec.mean, new.spec.std) == (-6.0, 4.0)
    assert old.spec.n_samples == new.spec.n_samples == 36 * 160
    encoder = new.encoder
    assert isinstance(encoder, ViT)
    assert sum(site.n_heads for site in encoder.sites) == 144
    assert (new.head.kind, old.head.kind) == ("semantic", "mlp")
    assert encoder.norm.eps == 1e-6


def test_m2d_drops_what_only_training_needs(tmp_path: Path, waves: list[np.ndarray]) -> None:
    plain = m2d.load(str(put(tmp_path, NAME_2024, state_2024())))
    extra = {
        "mask_token": torch.zeros(1, 1, 8),
        "decoder_pos_embed": torch.zeros(1, 11, 8),
        "decoder_blocks.0.norm1.weight": torch.zeros(8),
        "target_blocks.3.norm1.weight": torch.zeros(8),
        "target_norm.bias": torch.zeros(8),
        "logit_scale": torch.tensor(3.0),
    }
    full = put(tmp_path, f"{NAME_2024}-full", state_2024() | extra, pickled=True)
    trained = m2d.load(str(full))
    np.testing.assert_array_equal(embed_audio(plain, waves), embed_audio(trained, waves))
    assert trained.logit_scale == pytest.approx(np.exp(3.0))
    assert plain.logit_scale == pytest.approx(1 / 0.07)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("backbone.blocks.11.mlp.fc2.bias"), "missing: blocks.11.fc2.bias"),
        (lambda s: s.pop("backbone.audio_proj.sem_token"), "audio projection"),
        (lambda s: s.update({"backbone.pos_embed": torch.zeros(1, 12, 24)}), "wrong shape"),
        (lambda s: s.update({"backbone.surprise": torch.zeros(1)}), "surprise"),
        (lambda s: s.update({"somewhere.else": torch.zeros(1)}), "somewhere.else"),
        (
            lambda s: s.pop("text_encoder.text_encoder.encoder.layer.0.output.dense.bias"),
            "text encoder",
        ),
    ],
)
def test_m2d_names_what_is_wrong(tmp_path: Path, change: Any, said: str) -> None:
    state = state_2025()
    change(state)
    with pytest.raises(ModelError, match=said):
        m2d.load(str(put(tmp_path, NAME_2025, state)), text_heads=2)


def test_m2d_needs_its_folder_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="released name"):
        m2d.load(str(put(tmp_path, "my-model", state_2024())))
    with pytest.raises(ModelError, match=r"checkpoint-\*\.pth"):
        m2d.load(str(tmp_path))
    folder = put(tmp_path, NAME_2024, state_2024(), pickled=True)
    (folder / "checkpoint-200.pth").write_bytes((folder / "checkpoint-300.pth").read_bytes())
    with pytest.raises(ModelError, match=r"checkpoint-200\.pth, checkpoint-300\.pth"):
        m2d.load(str(folder))
    assert m2d.load(str(folder / "checkpoint-200.pth")).family == "m2d"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (NAME_2025, (80, 37, (16, 16), "16k", "B", 12)),
        (NAME_2024, (80, 37, (16, 16), "16k", "A", 12)),
        ("m2d_as_vit_large-80x1001p16x16p32k-240413_AS", (80, 1001, (16, 16), "32k", "A", 16)),
        ("m2d_clap_vit_base-80x1001p16x16p16kpN-x", (80, 1001, (16, 16), "16k", "N", 12)),
        ("m2d_s_vit_base-80x400p80x2-230201", (80, 400, (80, 2), "16k", "A", 12)),
    ],
)
def test_m2d_folder_names(name: str, wanted: tuple[Any, ...]) -> None:
    found = m2d.read_name(Path("/somewhere") / name / "checkpoint-30.pth")
    got = (found.n_mels, found.n_frames, found.patch, found.rate, found.text, found.n_heads)
    assert got == wanted


def test_m2d_finds_its_text_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = put(tmp_path, NAME_2024, state_2024())
    model = load_model(f"m2d:{folder}", device="cpu")
    assert embed_audio(model, [np.ones(800, np.float32)]).shape == (1, 24)
    with pytest.raises(ModelError, match=r"thenlper/gte-base.*text_encoder.*model\.safetensors"):
        model.embed_text(["a dog"])
    put_text(tmp_path / "elsewhere")
    ids, mask = torch.tensor([[2, 7, 9, 3, 0]]), torch.tensor([[1, 1, 1, 1, 0]])
    states = bert()(input_ids=ids, attention_mask=mask).last_hidden_state
    wanted = states[:, :4].mean(1)
    given = load_model(f"m2d:{folder}?text_encoder={tmp_path / 'elsewhere'}", device="cpu")
    put_text(folder / "text_encoder")
    beside = load_model(f"m2d:{folder}", device="cpu")
    for model in (given, beside):
        assert model.text is not None
        torch.testing.assert_close(model.text.encode(ids, mask), wanted, atol=1e-5, rtol=0)


def test_m2d_with_an_unsupported_text_encoder_embeds_audio(tmp_path: Path) -> None:
    name = NAME_2024.replace("p16x16", "p16x16p16kpN")
    model = m2d.load(str(put(tmp_path, name, state_2024())))
    assert isinstance(model.text, MissingText)
    with pytest.raises(ModelError, match="NV-Embed"):
        model.embed_text(["a dog"])


def test_m2d_text_projection(tmp_path: Path) -> None:
    weight, bias = torch.randn(24, 24), torch.randn(24)
    state = state_2024() | {"text_proj.weight": weight, "text_proj.bias": bias}
    folder = put(tmp_path, NAME_2024, state)
    put_text(folder / "text_encoder")
    model = m2d.load(str(folder))
    ids = torch.tensor([[2, 7, 3]])
    states = bert()(input_ids=ids).last_hidden_state.mean(1)
    assert model.text is not None
    got = model.text.encode(ids, torch.ones_like(ids))
    torch.testing.assert_close(got, states @ weight.T + bias, atol=1e-5, rtol=0)


def test_m2d_stacked_features(tmp_path: Path, waves: list[np.ndarray]) -> None:
    folder = put(tmp_path, NAME_2025, state_2025())
    flat = m2d.load(str(folder), text_heads=2)
    stacked = load_model(f"m2d:{folder}?features=stacked", device="cpu")
    assert stacked.joint_dim == 5 * 24
    features = flat.front_end(torch.from_numpy(waves[1])[None])
    tokens = flat.encode(features).tokens
    whole, rest = divmod(features.shape[1], 37)
    sizes = [2] * whole + ([min(-(-rest // 16), 2)] if rest else [])
    parts = tokens.split([5 * size for size in sizes], 1)
    rows = torch.cat([part.unflatten(1, (5, -1)) for part in parts], 2)  # clip row time width
    latent = stacked.encode(features).latent
    torch.testing.assert_close(latent, rows.mean(2).flatten(1), atol=1e-6, rtol=0)
    with pytest.raises(ModelError, match="no text side"):
        stacked.embed_text(["a dog"])
    with pytest.raises(ModelError, match="text_heads"):
        m2d.load(str(folder))
    assert m2d.load(f"{folder}?text_heads=2").text is not None
    for wrong in ("features=tall", "feature=stacked", "text_heads=two"):
        with pytest.raises(ModelError, match="features"):
            m2d.load(f"{folder}?{wrong}")


def test_plain_m2d_is_audio_only(tmp_path: Path, waves: list[np.ndarray]) -> None:
    draw = torch.Generator().manual_seed(0)
    model = m2d.load(str(put(tmp_path, "m2d_vit_base-80x37p16x16-220930-mr7", backbone(draw))))
    assert model.text is None
    assert embed_audio(model, waves).shape == (4, 24)
    with pytest.raises(ModelError, match="audio projection"):
        m2d.load(str(put(tmp_path, NAME_2024, backbone(draw))))


def test_a_long_clip_is_read_whole_unless_windows_are_asked_for(tmp_path: Path) -> None:
    model = m2d.load(str(put(tmp_path, NAME_2024, state_2024())))
    wave = np.random.default_rng(3).standard_normal(20_000).astype(np.float32)
    assert model.windows(wave).shape == (1, 20_000)
    assert model.windows(wave, "center").shape == (1, 5760)
    assert model.windows(wave, "tile").shape == (4, 5760)
