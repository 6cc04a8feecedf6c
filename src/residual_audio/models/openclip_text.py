"""Text towers of open_clip: CLIP's own transformer, or a model of transformers with a head."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from residual_audio.errors import ModelError
from residual_audio.models.clip_vocabulary import find_vocabulary
from residual_audio.models.joint import GELUMLP, MLP, Identity, JointHead, Linear
from residual_audio.models.text import (
    VOCABULARIES,
    TokenizerSpec,
    TransformersText,
    read_bert_config,
)
from residual_audio.models.text_cleaning import Cleaning
from residual_audio.models.text_clip import ClipText, ClipTextConfig
from residual_audio.models.weights import StateDict, below, get, load_strict

CLIP_TOKENIZER = "openai/clip-vit-base-patch32"
_SPECIAL_BLOCKS = (
    "qk_norm",
    "scaled_cosine_attn",
    "scale_heads",
    "scale_attn_inner",
    "scale_attn",
    "scale_fc",
)
_FAMILIES = {
    "xlm-roberta": {"pad_token_id": 1, "layer_norm_eps": 1e-5},
    "roberta": {"pad_token_id": 1, "layer_norm_eps": 1e-5},
    "bert": {"pad_token_id": 0, "layer_norm_eps": 1e-12},
}
"""Text models by their `model_type`, or what their name contains, in this order; and what the
tensors do not say, as in every release of them."""
_NAMES = {
    "ln_1": "norm1",
    "attn.in_proj_": "qkv.",
    "attn.out_proj": "proj",
    "ln_2": "norm2",
    "mlp.c_fc": "fc1",
    "mlp.c_proj": "fc2",
    "ls_1.gamma": "scale1",
    "ls_2.gamma": "scale2",
}


def read_text(
    state: StateDict, config: Mapping[str, object], quick_gelu: bool, folder: Path, where: str
) -> TransformersText | ClipText:
    """The tower that `text_cfg` describes, with the tensors below `text.`."""
    place = f"the text tower of {where}"
    if config.get("hf_model_name"):
        return _transformers_text(state, config, folder, place)
    return _clip_text(state, config, quick_gelu, folder, place)


def _tokenizer(config: Mapping[str, Any], folder: Path, context: int) -> TokenizerSpec:
    """The folder's own files first, then what the config names, then CLIP's merges."""
    options = dict(config.get("tokenizer_kwargs") or {})
    if config.get("tokenizer_mode"):
        raise ModelError(
            f"the tokenizer mode '{config['tokenizer_mode']}' of open_clip is not known"
        )
    named = config.get("hf_tokenizer_name")
    clean: Cleaning = options.get("clean", "whitespace" if named else "lower")
    here = any((folder / name).is_file() for name in VOCABULARIES)
    if named:
        source = str(folder) if here else str(named).removeprefix("local-dir:")
        strip = bool(options.get("strip_sep_token", False))
        return TokenizerSpec(source, max_length=context, clean=clean, no_separator=strip)
    merges = find_vocabulary(folder)
    source = str(folder) if here else str(merges) if merges else CLIP_TOKENIZER
    return TokenizerSpec(source, max_length=context, clean=clean, pad_id=0)


def _transformers_text(
    state: StateDict, config: Mapping[str, Any], folder: Path, where: str
) -> TransformersText:
    tensors = below(state, "transformer.")
    said = dict(config.get("hf_model_config") or {})
    name = str(said.get("model_type") or config["hf_model_name"]).lower()
    family = next((known for known in _FAMILIES if known in name), None)
    if family is None:
        raise ModelError(
            f"{where} is '{config['hf_model_name']}'; known are models of the kinds "
            f"{', '.join(_FAMILIES)}"
        )
    sizes = read_bert_config(tensors, where, said.get("num_attention_heads"))
    kinds = get(tensors, "embeddings.token_type_embeddings.weight", where).shape[0]
    known = {**_FAMILIES[family], **sizes, "type_vocab_size": kinds, **said}
    known.pop("model_type", None)
    pooled = "pooler.dense.weight" in tensors
    pooler = config.get("hf_pooler_type", "mean_pooler")
    if pooler is None:  # upstream's own choice for the architecture
        pooler = "cls_pooler" if family == "bert" else "mean_pooler"
    pools = {
        "mean_pooler": "mean",
        "cls_pooler": "pooler" if pooled else "first",
        "cls_last_hidden_state_pooler": "first",
    }
    if pooler not in pools:
        raise ModelError(f"{where} has the pooling '{pooler}'; known: {', '.join(pools)}")
    text = TransformersText(
        family if pooled else f"{family}-no-pooler",
        known,
        pools[pooler],
        _projection(below(state, "proj."), config.get("hf_proj_type", "mlp"), sizes, where),
        _tokenizer(config, folder, int(config.get("context_length") or 77)),
    )
    load_strict(text.backbone, tensors, where, ignore=("position_ids", "token_type_ids"))
    return text


def _projection(
    state: StateDict, kind: str | None, sizes: Mapping[str, Any], where: str
) -> JointHead:
    """`clap_mlp`: biases and ReLU, `mlp`: no biases and GELU, `linear`: no bias, or nothing."""
    if kind in (None, "", "none"):
        return Identity(int(sizes["hidden_size"]))
    if kind == "linear":
        weight = get(state, "weight", f"the projection of {where}")
        head: JointHead = Linear(weight.shape[1], weight.shape[0])
        load_strict(head, _with_biases({"linear.weight": weight}), where)
        return head
    if kind not in ("mlp", "clap_mlp"):
        raise ModelError(f"{where} has the projection '{kind}'; known: clap_mlp, mlp, linear")
    return two_layers(state, MLP if kind == "clap_mlp" else GELUMLP, f"the projection of {where}")


def two_layers(state: StateDict, kind: type[MLP] | type[GELUMLP], where: str) -> MLP | GELUMLP:
    """`0.weight`, `2.weight` and their biases, which are 0 where there are none."""
    first, second = get(state, "0.weight", where), get(state, "2.weight", where)
    head = kind(first.shape[1], first.shape[0], second.shape[0])
    names = {"0": "linear1", "2": "linear2"}
    renamed = {re.sub(r"^[02]", lambda m: names[m[0]], key): value for key, value in state.items()}
    load_strict(head, _with_biases(renamed), where)
    return head


def _with_biases(state: Mapping[str, Tensor]) -> StateDict:
    missing = {
        key.replace("weight", "bias"): torch.zeros(len(value))
        for key, value in state.items()
        if key.endswith("weight")
    }
    return {**missing, **state}


def _clip_text(
    state: StateDict, config: Mapping[str, Any], quick_gelu: bool, folder: Path, where: str
) -> ClipText:
    special = [name for name in _SPECIAL_BLOCKS if config.get(name)]
    if special or config.get("block_type") not in (None, "default"):
        raise ModelError(f"{where} has blocks of another kind ({', '.join(special) or 'custom'})")
    projection = state.get("text_projection")
    if projection is not None:
        state = {
            **state,
            "head.weight": projection.T,
            "head.bias": torch.zeros(projection.shape[1]),
        }
    ours = _clip_names(state)
    positions, width = get(ours, "positions", where).shape
    hidden = get(ours, "blocks.0.fc1.weight", where).shape[0]
    approximate = (config.get("act_kwargs") or {}).get("approximate", "none")
    eps = (config.get("norm_kwargs") or {}).get("eps", 1e-5)
    settings = ClipTextConfig(
        vocabulary=get(ours, "tokens.weight", where).shape[0],
        context=positions,
        width=width,
        depth=len({key.split(".")[1] for key in ours if key.startswith("blocks.")}),
        n_heads=int(config.get("heads", 8)),
        hidden=hidden,
        d_out=ours["head.weight"].shape[0] if "head.weight" in ours else 0,
        activation="quick-gelu" if quick_gelu else "gelu-tanh" if approximate == "tanh" else "gelu",
        norm_eps=float(eps),
        causal=not config.get("no_causal_mask", False),
        pool=config.get("pool_type", "argmax"),
        pad_id=int(config.get("pad_id", 0)),
        eos_id=int(config.get("eos_id", 2)),
        pad_mask=bool(config.get("use_pad_mask", False)),
        class_token="class_token" in ours,
        class_mask_last=bool(config.get("correct_cls_mask", False)),
        layer_scale="blocks.0.scale1" in ours,
    )
    context = positions - settings.class_token
    text = ClipText(settings, _tokenizer(config, folder, context))
    load_strict(text, ours, where)
    return text


def _clip_names(state: StateDict) -> StateDict:
    top = {
        "token_embedding.": "tokens.",
        "positional_embedding": "positions",
        "cls_emb": "class_token",
        "ln_final.": "norm.",
        "text_projection.": "head.",
    }
    found: StateDict = {}
    for key, value in state.items():
        if key in ("text_projection", "attn_mask"):
            continue
        block = re.fullmatch(r"transformer\.resblocks\.(\d+)\.(.+)", key)
        name = block[2] if block else key
        for theirs, ours in (_NAMES if block else top).items():
            if name.startswith(theirs):
                name = ours + name.removeprefix(theirs)
                break
        found[f"blocks.{block[1]}.{name}" if block else name] = value
    return found
