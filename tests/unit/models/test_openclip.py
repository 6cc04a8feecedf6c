"""open_clip's variants that are settings, not tensors: each against the formula it stands for, the
text models against transformers."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from residual_audio.errors import ModelError
from residual_audio.models import openclip
from residual_audio.models.clip_vocabulary import FILE, N_MERGES, find_vocabulary, read_vocabulary
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.random_whisper import TINY
from residual_audio.models.swin_names import to_upstream
from residual_audio.models.text import TokenizerSpec, tokenize_texts
from residual_audio.models.text_cleaning import clean_text
from residual_audio.models.vit import ViT, ViTConfig

D, JOINT, WIDTH = 16, 10, 16
SWIN = HTSATConfig(embed_dim=8, depths=(1, 1), n_heads=(2, 2))
AUDIO = {"model_type": "HTSAT", "model_name": "tiny"}
TEXT = {
    "hf_model_name": "roberta-base",
    "hf_pooler_type": "mean_pooler",
    "hf_proj_type": "linear",
    "hf_model_config": {"num_attention_heads": 2},
}
SIZES = {
    "vocab_size": 40, "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 20, "max_position_embeddings": 24,
}  # fmt: skip
IDS = torch.tensor([[0, 7, 9, 2, 1, 1], [0, 5, 2, 1, 1, 1]])


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.3


def roberta(pooler: bool = False) -> RobertaModel:
    torch.manual_seed(1)
    config = RobertaConfig(**SIZES, pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5)
    return RobertaModel(config, add_pooling_layer=pooler).eval()


def state_of(text: torch.nn.Module, proj: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    encoder = HTSAT(SWIN)
    state = {f"audio.encoder.{k}": v for k, v in to_upstream(encoder.state_dict()).items()}
    state |= {f"text.transformer.{k}": v for k, v in text.state_dict().items()}
    state |= {f"text.proj.{k}" if k else "text.proj": v for k, v in proj.items()}
    state |= {
        "audio.proj.0.weight": noise(JOINT, D), "audio.proj.0.bias": noise(JOINT, seed=1),
        "audio.proj.2.weight": noise(JOINT, JOINT, seed=2),
        "audio.proj.2.bias": noise(JOINT, seed=3), "logit_scale": torch.tensor(2.0),
    }  # fmt: skip
    return state


def put(
    folder: Path, state: dict[str, torch.Tensor], audio: dict[str, Any], text: dict[str, Any]
) -> Path:
    config = {"model_cfg": {"embed_dim": JOINT, "audio_cfg": audio, "text_cfg": text}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    save_file({k: v.contiguous() for k, v in state.items()}, folder / openclip.WEIGHTS[0])
    return folder


@pytest.fixture(scope="module")
def plain() -> dict[str, torch.Tensor]:
    return state_of(roberta(), {"weight": noise(JOINT, WIDTH, seed=4)})


@pytest.mark.parametrize("unit", ["", "pre_norm", "training_head"])
@pytest.mark.parametrize("act", ["relu", "gelu"])
def test_audio_projection(
    plain: dict[str, torch.Tensor], tmp_path: Path, act: str, unit: str
) -> None:
    audio = {**AUDIO, "proj_act": act, **({unit: True} if unit else {})}
    model = openclip.load(str(put(tmp_path, plain, audio, TEXT)))
    latent = noise(3, D, seed=5)
    x = F.normalize(latent, dim=-1) if unit else latent
    hidden = x @ plain["audio.proj.0.weight"].T + plain["audio.proj.0.bias"]
    hidden = F.relu(hidden) if act == "relu" else F.gelu(hidden)
    wanted = hidden @ plain["audio.proj.2.weight"].T + plain["audio.proj.2.bias"]
    torch.testing.assert_close(model.head.from_latent(latent), wanted)
    assert model.logit_scale == pytest.approx(np.exp(2.0))


@pytest.mark.parametrize("unit", [False, True])
def test_whisper_is_projected_before_its_own_projection(
    plain: dict[str, torch.Tensor], tmp_path: Path, unit: bool
) -> None:
    config = ViTConfig(**{**TINY.to_dict(), "width": 12, "depth": 1, "hidden": 48, "halve": True})
    names = {"norm1": "attn_ln", "proj": "attn.out", "norm2": "mlp_ln", "fc1": "mlp.0",
             "fc2": "mlp.2"}  # fmt: skip
    state = {k: v for k, v in plain.items() if not k.startswith("audio.")}
    for key, value in ViT(config).state_dict().items():
        block, _, rest = key.removeprefix("blocks.").partition(".")
        if "qkv" in key:
            for part, third in zip(("query", "key", "value"), value.chunk(3), strict=True):
                if (part, key[-4:]) != ("key", "bias"):
                    kind = key.rpartition(".")[2]
                    state[f"audio.encoder.blocks.{block}.attn.{part}.{kind}"] = third.clone()
        elif key.startswith("blocks."):
            name, _, kind = rest.rpartition(".")
            state[f"audio.encoder.blocks.{block}.{names[name]}.{kind}"] = value
        else:
            renamed = key.replace("stem.", "").replace("positions", "positional_embedding")
            state["audio.encoder." + renamed.replace("norm.", "ln_post.")] = value
    first = {"weight": noise(JOINT, 12, seed=6), "bias": noise(JOINT, seed=7)}
    state |= {f"audio.encoder.proj.{k}": v for k, v in first.items()}
    for layer in (0, 2):
        state[f"audio.proj.{layer}.weight"] = noise(JOINT, JOINT, seed=9 + layer)
        state[f"audio.proj.{layer}.bias"] = noise(JOINT, seed=10 + layer)
    audio = {"model_type": "whisper", "model_name": "tiny", "sample_rate": 16000, "pre_norm": unit}
    model = openclip.load(str(put(tmp_path, state, audio, TEXT)))
    latent = noise(3, 12, seed=8)
    x = latent @ first["weight"].T + first["bias"]
    x = F.normalize(x, dim=-1) if unit else x
    hidden = F.gelu(x @ state["audio.proj.0.weight"].T + state["audio.proj.0.bias"])
    wanted = hidden @ state["audio.proj.2.weight"].T + state["audio.proj.2.bias"]
    torch.testing.assert_close(model.head.from_latent(latent), wanted)
    assert (model.spec.mel_scale, model.spec.short) == ("htk", "repeat-pad")


@pytest.mark.parametrize(
    ("pooler", "kind"),
    [("cls_pooler", "clap_mlp"), ("mean_pooler", "mlp"), ("cls_last_hidden_state_pooler", None)],
)
def test_text_heads_and_pooling(tmp_path: Path, pooler: str, kind: str | None) -> None:
    theirs = roberta(pooler == "cls_pooler")
    proj: dict[str, torch.Tensor] = {}
    if kind:
        proj = {"0.weight": noise(12, WIDTH), "2.weight": noise(JOINT, 12)}
    if kind == "clap_mlp":
        proj |= {"0.bias": noise(12), "2.bias": noise(JOINT)}
    text = {**TEXT, "hf_pooler_type": pooler, "hf_proj_type": kind}
    model = openclip.load(str(put(tmp_path, state_of(theirs, proj), AUDIO, text)))
    mask = (IDS != 1).long()
    with torch.inference_mode():
        out = theirs(input_ids=IDS, attention_mask=mask)
        hidden = out.last_hidden_state
        if pooler == "mean_pooler":
            x = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        else:
            x = out.pooler_output if pooler == "cls_pooler" else hidden[:, 0]
        if kind == "mlp":
            x = F.gelu(x @ proj["0.weight"].T) @ proj["2.weight"].T
        elif kind == "clap_mlp":
            x = F.relu(x @ proj["0.weight"].T + proj["0.bias"])
            x = x @ proj["2.weight"].T + proj["2.bias"]
        torch.testing.assert_close(model.text.encode(IDS, mask), x)


@pytest.mark.parametrize("pooler", ["mean_pooler", None])
def test_bert_text(tmp_path: Path, pooler: str | None) -> None:
    torch.manual_seed(2)
    theirs = BertModel(BertConfig(**SIZES), add_pooling_layer=False).eval()
    state = state_of(theirs, {"weight": noise(JOINT, WIDTH)})
    text = {**TEXT, "hf_model_name": "bert-base-uncased", "hf_pooler_type": pooler}
    model = openclip.load(str(put(tmp_path, state, AUDIO, text)))
    mask = (IDS != 1).long()
    with torch.inference_mode():
        hidden = theirs(input_ids=IDS, attention_mask=mask).last_hidden_state
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        x = mean if pooler else hidden[:, 0]  # without a name it is the architecture's own
        torch.testing.assert_close(model.text.encode(IDS, mask), x @ noise(JOINT, WIDTH).T)


@pytest.mark.parametrize(
    ("audio", "text", "said"),
    [
        ({"model_type": "naflexvit"}, {}, "naflexvit"),
        ({"enable_fusion": True}, {}, "the opposite"),
        ({"enable_fusion": True, "fusion_type": "iaff_2d"}, {}, "iaff_2d"),
        ({"mel_bins": 80}, {}, "80 mels"),
        ({}, {"hf_model_name": "google/mt5-small"}, "mt5"),
        ({}, {"hf_pooler_type": "max_pooler"}, "max_pooler"),
        ({}, {"hf_proj_type": "conv"}, "conv"),
    ],
)
def test_refused(
    plain: dict[str, torch.Tensor], tmp_path: Path, audio: dict, text: dict, said: str
) -> None:
    folder = put(tmp_path, plain, {**AUDIO, **audio}, {**TEXT, **text})
    with pytest.raises(ModelError, match=said):
        openclip.load(str(folder))


def test_files_and_what_is_missing(plain: dict[str, torch.Tensor], tmp_path: Path) -> None:
    put(tmp_path, plain, AUDIO, TEXT)
    config = (tmp_path / "open_clip_config.json").rename(tmp_path / "named.json")
    weights = tmp_path / openclip.WEIGHTS[0]
    with pytest.raises(ModelError, match=r"config=<file\.json>"):
        openclip.load(str(weights))
    model = openclip.load(f"{weights}?config={config}")
    trained = tmp_path / "epoch_1.pt"
    torch.save({"epoch": 1, "state_dict": {f"module.{k}": v for k, v in plain.items()}}, trained)
    again = openclip.load(f"{trained}?config={config}")
    torch.testing.assert_close(model.encoder.state_dict(), again.encoder.state_dict())
    with pytest.raises(ModelError, match="no file"):
        openclip.load(str(tmp_path / "absent.pt"))
    with pytest.raises(ModelError, match="only option"):
        openclip.load(f"{weights}?text=x")
    torch.save({"state_dict": {"x": torch.zeros(1)}}, trained)
    with pytest.raises(ModelError, match="no CLAP model of open_clip"):
        openclip.load(f"{trained}?config={config}")


def test_clip_vocabulary(tmp_path: Path) -> None:
    merges = ["d o", "do g</w>", "t h", "th e</w>"]
    digits = [f"{a}{b}" for a in "0123456789" for b in "0123456789"]
    merges += [f"{pair[0]} {pair[1]}" for pair in digits]
    merges += [f"{a} {b}" for a in digits for b in digits]
    longer = (f"{a}{b} {c}" for a in digits for b in digits for c in digits)
    merges += list(islice(longer, N_MERGES - len(merges)))
    (tmp_path / FILE).write_bytes(gzip.compress("\n".join(["#version", *merges]).encode()))
    found = find_vocabulary(tmp_path)
    assert found is not None
    tokenizer = read_vocabulary(found)
    spec = TokenizerSpec(str(found), max_length=8, clean="lower", pad_id=0)
    ids = tokenize_texts(tokenizer, spec, ["The  DOG!", "the dog the dog the dog the dog"])
    the, dog, mark = 512 + 3, 512 + 1, 256  # "!" is the first byte, 256 on are ends of words
    assert ids["input_ids"].tolist() == [
        [49406, the, dog, mark, 49407, 0, 0, 0],
        [49406, the, dog, the, dog, the, dog, 49407],
    ]
    assert ids["attention_mask"].sum(1).tolist() == [5, 8]
    (tmp_path / FILE).write_bytes(b"not gzip")
    with pytest.raises(ModelError, match="vocabulary of CLIP"):
        read_vocabulary(tmp_path / FILE)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("", "  A “caf\u0065\u0301”  &amp; it’s "),
        ("whitespace", 'A "caf\u00e9" & it\'s'),
        ("lower", 'a "caf\u00e9" & it\'s'),
        ("canonicalize", "a caf\u00e9 its"),
    ],
)
def test_cleaning(how: str, wanted: str) -> None:
    assert clean_text("  A “caf\u0065\u0301”  &amp; it’s ", how) == wanted
