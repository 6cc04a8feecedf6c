"""LAION-CLAP pickles, fused and unfused, tiny to large; and writing such files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from residual_audio.audio import specs
from residual_audio.errors import ModelError
from residual_audio.files import replacing
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end, refuse_unsaid
from residual_audio.models.htsat import HTSAT
from residual_audio.models.joint import MLP
from residual_audio.models.releases import named_file
from residual_audio.models.swin_names import from_upstream, read_config, to_upstream
from residual_audio.models.text import TokenizerSpec, TransformersText, read_bert_config
from residual_audio.models.weights import (
    StateDict,
    below,
    get,
    load_strict,
    read_checkpoint,
    require_file,
    sha256_of,
)

_BERT = "bert-base-uncased"


def load(ref: str, *, text_heads: int | None = None, quantise: bool = True) -> AudioTextModel:
    """`ref` is a LAION checkpoint (.pt, or its tensors as .safetensors), or the name of a release
    such as `630k-audioset-best`.

    `text_heads` is needed only for text towers that are not 64 wide per head. `quantise` keeps
    upstream's int16 round trip of the waveform.
    """
    path = require_file(named_file("laion", ref), "a LAION-CLAP checkpoint")
    state = read_state(path)
    if "text_branch.shared.weight" in state:
        raise ModelError(
            f"'{path}' has T5 for its texts, as AF-CLAP: open it with afclap:{ref}, which also "
            "hears as that does (16 kHz)"
        )
    audio = from_upstream(below(state, "audio_branch."))
    encoder = HTSAT(read_config(audio, f"'{path}'"))
    load_strict(encoder, audio, f"the audio branch of '{path}'")
    fused = encoder.config.fusion
    spec = replace(specs.LAION_FUSION if fused else specs.LAION, quantise=quantise)
    # The released front-end makes features for the model outside of it, with Slaney filters; those
    # in the checkpoint are the same. With fusion the outside features use HTK filters.
    bank = state.get("audio_branch.logmel_extractor.melW")
    if bank is not None:  # HTSAT-tiny-win-1536 has longer frames; nothing else tells it apart
        spec = replace(spec, n_fft=2 * (bank.shape[0] - 1))
    filters = None if fused else bank
    return AudioTextModel(
        name=f"laion:{ref}",
        family="laion",
        front_end=build_front_end(spec, filters),
        encoder=encoder,
        head=read_projection(below(state, "audio_projection."), path),
        text=_text(state, path, text_heads),
        logit_scale=math.exp(float(get(state, "logit_scale_a", f"'{path}'"))),
        sha256=sha256_of(path),
    )


def read_state(path: Path) -> StateDict:
    """Tensors without the `module.` that data-parallel training puts before every name."""
    state = read_checkpoint(path, "state_dict")
    if not any("audio_branch." in key for key in state):
        raise ModelError(
            f"'{path}' has no 'audio_branch.*' tensors: it is not a LAION-CLAP checkpoint"
        )
    return {key.removeprefix("module."): value for key, value in state.items()}


def read_projection(state: StateDict, path: Path) -> MLP:
    """Two layers with ReLU between them, `0` and `2`."""
    where = f"the projection of '{path}'"
    first, second = get(state, "0.weight", where), get(state, "2.weight", where)
    head = MLP(first.shape[1], first.shape[0], second.shape[0])
    named = {
        key.replace("0.", "linear1.", 1).replace("2.", "linear2.", 1): value
        for key, value in state.items()
    }
    load_strict(head, named, where)
    return head


def _text(state: StateDict, path: Path, n_heads: int | None) -> TransformersText | None:
    tensors = below(state, "text_branch.")
    if not tensors:
        return None
    where = f"the text branch of '{path}'"
    kinds = get(tensors, "embeddings.token_type_embeddings.weight", where).shape[0]
    # Both have tensors of the same names. BERT knows two kinds of token, RoBERTa one.
    kind, pad, eps, vocabulary = (
        ("roberta", 1, 1e-5, "roberta-base") if kinds == 1 else ("bert", 0, 1e-12, _BERT)
    )
    config = {
        **read_bert_config(tensors, where, n_heads),
        "type_vocab_size": kinds,
        "pad_token_id": pad,
        "layer_norm_eps": eps,
    }
    head = read_projection(below(state, "text_projection."), path)
    text = TransformersText(kind, config, "pooler", head, TokenizerSpec(vocabulary))
    load_strict(text.backbone, tensors, where, ignore=("position_ids", "token_type_ids"))
    return text


def _refuse_unsaid(model: AudioTextModel, encoder: HTSAT) -> None:
    """The file holds tensors alone: what their shapes do not say must be as released."""
    released = specs.LAION_FUSION if encoder.config.fusion else specs.LAION
    refuse_unsaid(model.name, model.spec, released, "LAION-CLAP")
    text = model.text
    if text is not None and not (
        isinstance(text, TransformersText)
        and text.architecture in ("clap-text", "roberta")
        and isinstance(text.head, MLP)
    ):
        raise ModelError(
            f"'{model.name}' cannot be written as LAION-CLAP: that layout has no place for its "
            "text tower (RoBERTa with a two-layer head). Use --to native."
        )
    said = read_config(encoder.state_dict(), f"'{model.name}'").to_dict()
    ours = encoder.config.to_dict()
    if different := [f"{k} {v} (there: {said[k]})" for k, v in ours.items() if v != said[k]]:
        raise ModelError(
            f"'{model.name}' cannot be written as LAION-CLAP: the file would load as another "
            f"encoder. {', '.join(different)}. Use --to native."
        )


def save(model: AudioTextModel, out: Path) -> None:
    """Write a checkpoint that LAION's own code opens (`load_ckpt`), as .pt or .safetensors.

    Names are upstream's. The tagging head and the front-end, which do not shape embeddings, are
    left out: upstream loads with its own initial values there (`strict=False`).
    """
    encoder, text = model.encoder, model.text
    if not isinstance(encoder, HTSAT) or not isinstance(model.head, MLP):
        raise ModelError(f"'{model.name}' ({model.family}) has no counterpart in LAION-CLAP")
    _refuse_unsaid(model, encoder)
    state = {f"audio_branch.{k}": v for k, v in to_upstream(encoder.state_dict()).items()}
    heads = [("audio_projection", model.head)]
    if isinstance(text, TransformersText) and isinstance(text.head, MLP):
        state |= {f"text_branch.{k}": v for k, v in text.backbone.state_dict().items()}
        heads.append(("text_projection", text.head))
    for name, head in heads:
        for key, value in head.state_dict().items():
            key = key.replace("linear1", "0").replace("linear2", "2")
            state[f"{name}.{key}"] = value
    scale = torch.tensor(math.log(model.logit_scale))
    state |= {"logit_scale_a": scale, "logit_scale_t": scale.clone()}
    state = {key: value.detach().cpu().contiguous().clone() for key, value in state.items()}
    if out.exists():
        raise ModelError(f"'{out}' exists: nothing was written")
    with replacing(out) as temporary:
        if out.suffix == ".safetensors":
            from safetensors.torch import save_file

            save_file(state, temporary)
        else:
            torch.save({"epoch": 0, "name": "residual-audio", "state_dict": state}, temporary)
