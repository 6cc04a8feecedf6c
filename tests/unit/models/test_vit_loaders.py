"""Opening M2D-CLAP, AST and Whisper: transformers as the oracle, and what a loader must refuse."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from heard import embed_audio
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import (
    ASTConfig,
    ASTFeatureExtractor,
    ASTForAudioClassification,
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from residual_audio.errors import ModelError
from residual_audio.models import ast, m2d, native, whisper
from residual_audio.models.registry import load_model
from residual_audio.models.text import MissingText
from residual_audio.models.vit import ViT
from residual_audio.types import Site

NAME_2025 = "m2d_clap_vit_base-80x37p16x16p16kpBpTI-2025"
NAME_2024 = "m2d_clap_vit_base-80x37p16x16-240128"


@pytest.fixture(scope="module")
def waves() -> list[np.ndarray]:
    """Short, exact, long and 1-sample clips at 16 kHz."""
    draw = np.random.default_rng(0)
    return [0.1 * draw.standard_normal(n).astype(np.float32) for n in (4000, 16_000, 40_000, 1)]


class Raw:
    points = frozenset({"raw"})

    def __init__(self) -> None:
        self.heads: dict[int, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        assert isinstance(where, Site)
        self.heads[where.block] = value.flatten(2)


def noise(module: torch.nn.Module) -> None:
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0.5 if parameter.ndim < 2 else 0.0, 0.1)


# -- Whisper -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whisper_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = WhisperConfig(
        d_model=32,
        encoder_layers=3,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        vocab_size=50,
        max_source_positions=50,
        max_target_positions=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = WhisperForConditionalGeneration(config).eval()
    noise(model)
    folder = tmp_path_factory.mktemp("whisper")
    model.save_pretrained(folder)
    WhisperFeatureExtractor(chunk_length=1).save_pretrained(folder)
    return folder


def test_whisper_equals_transformers(whisper_folder: Path, waves: list[np.ndarray]) -> None:
    theirs = WhisperForConditionalGeneration.from_pretrained(whisper_folder).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(whisper_folder)
    ours = load_model(f"whisper:{whisper_folder}", device="cpu")
    features = extractor(waves, sampling_rate=16_000, return_tensors="pt").input_features
    windows = torch.from_numpy(np.concatenate([ours.windows(wave) for wave in waves]))
    torch.testing.assert_close(ours.front_end(windows), features.transpose(1, 2), atol=2e-4, rtol=0)
    heads: dict[int, Tensor] = {}
    for i, layer in enumerate(theirs.model.encoder.layers):
        layer.self_attn.out_proj.register_forward_pre_hook(
            lambda module, args, i=i: heads.__setitem__(i, args[0])
        )
    tap = Raw()
    with torch.inference_mode():
        wanted = theirs.model.encoder(features).last_hidden_state
        got = ours.encode(features.transpose(1, 2), tap=tap)
    torch.testing.assert_close(got.tokens, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(got.latent, wanted.mean(1), atol=1e-5, rtol=0)
    for block, raw in heads.items():
        torch.testing.assert_close(tap.heads[block], raw, atol=1e-5, rtol=0)
    unit = torch.nn.functional.normalize(wanted.mean(1), dim=-1).numpy()
    np.testing.assert_allclose(embed_audio(ours, waves, batch_size=3), unit, atol=1e-5)
    with pytest.raises(ModelError, match="no text side"):
        ours.embed_text(["a dog"])


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("config.json", {"model_type": "clap"}, "not Whisper"),
        ("config.json", {"activation_function": "relu"}, "relu"),
        ("config.json", {"encoder_layers": 2}, "unknown"),
        ("config.json", {"encoder_layers": 4}, "missing"),
        ("config.json", {"d_model": None}, "d_model"),
        ("preprocessor_config.json", {"chunk_length": 2}, "200 frames"),
    ],
)
def test_whisper_refuses(
    whisper_folder: Path, tmp_path: Path, file: str, change: dict[str, Any], said: str
) -> None:
    folder = copy(whisper_folder, tmp_path)
    values = {**json.loads((folder / file).read_text()), **change}
    values = {key: value for key, value in values.items() if value is not None}
    (folder / file).write_text(json.dumps(values))
    with pytest.raises(ModelError, match=said):
        whisper.load(str(folder))


def copy(folder: Path, to: Path) -> Path:
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


@pytest.mark.parametrize(
    "missing",
    [
        "model.encoder.layers.1.self_attn.k_proj.weight",
        "model.encoder.layers.1.self_attn.q_proj.bias",
        "model.encoder.layers.0.fc1.bias",
        "model.encoder.embed_positions.weight",
    ],
)
def test_whisper_names_a_missing_tensor(whisper_folder: Path, tmp_path: Path, missing: str) -> None:
    folder = copy(whisper_folder, tmp_path)
    state = load_file(folder / "model.safetensors")
    del state[missing]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(ModelError, match="missing"):
        whisper.load(str(folder))


# -- AST ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ast_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = ASTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        num_mel_bins=64,
        max_length=100,
        frequency_stride=8,
        time_stride=12,
        qkv_bias=False,
        num_labels=5,
    )
    model = ASTForAudioClassification(config).eval()
    noise(model)
    folder = tmp_path_factory.mktemp("ast")
    model.save_pretrained(folder)
    ASTFeatureExtractor(num_mel_bins=64, max_length=100, mean=-5.0, std=3.0).save_pretrained(folder)
    return folder


def test_ast_equals_transformers(ast_folder: Path, waves: list[np.ndarray]) -> None:
    theirs = ASTForAudioClassification.from_pretrained(ast_folder).eval()
    extractor = ASTFeatureExtractor.from_pretrained(ast_folder)
    ours = load_model(f"ast:{ast_folder}", device="cpu")
    some = waves[:3]  # transformers' extractor refuses a clip shorter than a frame
    features = extractor(some, sampling_rate=16_000, return_tensors="pt").input_values
    tap = Raw()
    with torch.inference_mode():
        wanted = theirs.audio_spectrogram_transformer(features)
        got = ours.encode(features, tap=tap)
    assert got.special is not None
    tokens = torch.cat([got.special, got.tokens], 1)
    torch.testing.assert_close(tokens, wanted.last_hidden_state, atol=1e-5, rtol=0)
    torch.testing.assert_close(got.latent, wanted.pooler_output, atol=1e-5, rtol=0)
    unit = torch.nn.functional.normalize(wanted.pooler_output, dim=-1).numpy()
    np.testing.assert_allclose(embed_audio(ours, some), unit, atol=1e-5)
    assert np.isfinite(embed_audio(ours, waves)).all()


def test_ast_refuses_another_model(whisper_folder: Path, ast_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="whisper"):
        ast.load(str(whisper_folder))
    folder = copy(ast_folder, tmp_path)
    state = load_file(folder / "model.safetensors")
    key = next(key for key in state if key.endswith("distillation_token"))
    del state[key]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(ModelError, match="distillation_token"):
        ast.load(str(folder))


# -- M2D ---------------------------------------------------------------------------------------


def backbone(draw: torch.Generator) -> dict[str, Tensor]:
    """Upstream's tensors at width 24: 12 blocks, 12 heads, 37 frames."""

    def tensor(*shape: int) -> Tensor:
        return 0.2 * torch.randn(shape, generator=draw)

    state = {
        "cls_token": tensor(1, 1, 24),
        "pos_embed": tensor(1, 11, 24),
        "patch_embed.proj.weight": tensor(24, 1, 16, 16),
        "patch_embed.proj.bias": tensor(24),
        "norm.weight": 1 + tensor(24),
        "norm.bias": tensor(24),
    }
    for block in range(12):
        state |= {f"blocks.{block}.{k}": v for k, v in timm_block(tensor, 24, 48).items()}
    return state


def timm_block(tensor: Any, width: int, hidden: int) -> dict[str, Tensor]:
    sizes = {
        "attn.qkv": (3 * width, width),
        "attn.proj": (width, width),
        "mlp.fc1": (hidden, width),
        "mlp.fc2": (width, hidden),
    }
    found = {f"{name}.weight": tensor(*shape) for name, shape in sizes.items()}
    found |= {f"{name}.bias": tensor(shape[0]) for name, shape in sizes.items()}
    for name in ("norm1", "norm2"):
        found |= {f"{name}.weight": 1 + tensor(width), f"{name}.bias": tensor(width)}
    return found


def bert() -> BertModel:
    sizes = BertConfig(
        vocab_size=40,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    torch.manual_seed(1)
    return BertModel(sizes).eval()


def state_2024() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    head = {f"audio_proj.{i}.weight": torch.randn(24, 24, generator=draw) for i in (0, 2)}
    head |= {f"audio_proj.{i}.bias": torch.randn(24, generator=draw) for i in (0, 2)}
    return backbone(draw) | head


def state_2025() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> Tensor:
        return 0.2 * torch.randn(shape, generator=draw)

    audio = backbone(draw) | {"norm_stats": torch.tensor([-6.0, 4.0])}
    audio |= {"audio_proj.sem_token": tensor(1, 1, 24)}
    audio |= {"audio_proj.norm.weight": 1 + tensor(24), "audio_proj.norm.bias": tensor(24)}
    block = timm_block(tensor, 24, 24)
    audio |= {f"audio_proj.sem_blocks.0.{key}": value for key, value in block.items()}
    text = {f"text_encoder.text_encoder.{k}": v for k, v in bert().state_dict().items()}
    return {f"backbone.{key}": value for key, value in audio.items()} | text


def put(root: Path, name: str, state: dict[str, Tensor], pickled: bool = False) -> Path:
    folder = root / name
    folder.mkdir()
    if pickled:
        arguments = argparse.Namespace(epochs=300, output_dir="x", lr=1e-4)
        checkpoint = {"model": state, "epoch": 300, "args": arguments}
        torch.save(checkpoint, folder / "checkpoint-300.pth")
    else:
        save_file({k: v.contiguous() for k, v in state.items()}, folder / "model.safetensors")
    return folder


def put_text(folder: Path) -> None:
    bert().save_pretrained(folder)


def put_tokenizer(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "rain"]
    model = models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
    fast.save_pretrained(folder)


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


@pytest.mark.parametrize("kind", ["m2d", "m2d_2024", "stacked", "ast", "whisper"])
def test_same_vector_in_any_batch_and_after_conversion(
    kind: str, tmp_path: Path, whisper_folder: Path, ast_folder: Path, waves: list[np.ndarray]
) -> None:
    if kind == "m2d":
        folder = put(tmp_path, NAME_2025, state_2025())
        put_tokenizer(folder)
        model = m2d.load(str(folder), text_heads=2)
    elif kind == "m2d_2024":
        model = m2d.load(str(put(tmp_path, NAME_2024, state_2024())))
    elif kind == "stacked":
        model = m2d.load(str(put(tmp_path, NAME_2025, state_2025())) + "?features=stacked")
    else:
        model = ast.load(str(ast_folder)) if kind == "ast" else whisper.load(str(whisper_folder))
    clips = [*waves, waves[0][::-1].copy(), waves[1][::-1].copy()]
    alone = np.concatenate([embed_audio(model, [clip]) for clip in clips])
    together = embed_audio(model, clips[::-1], batch_size=6)[::-1]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    native.save(model, tmp_path / "converted")
    again = load_model(str(tmp_path / "converted"), device="cpu")
    np.testing.assert_array_equal(embed_audio(again, clips), embed_audio(model, clips))
    if kind == "m2d":
        texts = ["a dog", "rain"]
        np.testing.assert_array_equal(again.embed_text(texts), model.embed_text(texts))
        first = bert()(input_ids=torch.tensor([[2, 6, 3]])).last_hidden_state[:, 0]
        unit = torch.nn.functional.normalize(first, dim=-1).detach().numpy()
        np.testing.assert_allclose(model.embed_text(texts)[1:], unit, atol=1e-5)
    elif kind == "m2d_2024":
        with pytest.raises(ModelError, match="gte-base"):
            again.embed_text(["a dog"])


def test_a_long_clip_is_read_whole_unless_windows_are_asked_for(tmp_path: Path) -> None:
    model = m2d.load(str(put(tmp_path, NAME_2024, state_2024())))
    wave = np.random.default_rng(3).standard_normal(20_000).astype(np.float32)
    assert model.windows(wave).shape == (1, 20_000)
    assert model.windows(wave, "center").shape == (1, 5760)
    assert model.windows(wave, "tile").shape == (4, 5760)
