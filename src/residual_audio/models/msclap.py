"""Microsoft CLAP 2023 checkpoints."""

from __future__ import annotations

import math

from residual_audio.audio import specs
from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.htsat import HTSAT
from residual_audio.models.joint import ResidualMLP
from residual_audio.models.releases import named_file
from residual_audio.models.swin_names import from_upstream, read_config
from residual_audio.models.text import TokenizerSpec, TransformersText
from residual_audio.models.weights import (
    StateDict,
    below,
    get,
    load_strict,
    read_checkpoint,
    require_file,
    sha256_of,
)

_AUDIO = "audio_encoder.base.htsat."


def load(ref: str, *, text_heads: int | None = None) -> AudioTextModel:
    """`ref` is CLAP_weights_2023.pth (or its tensors as .safetensors), or `2023`."""
    path = require_file(named_file("msclap", ref), "a Microsoft CLAP 2023 checkpoint")
    where = f"'{path}'"
    state = read_checkpoint(path, "model")
    if not any(key.startswith(_AUDIO) for key in state):
        if any(key.startswith("audio_encoder.base.conv_block1.") for key in state):
            raise ModelError(
                f"{where} is Microsoft CLAP 2022: its audio encoder is a CNN (Cnn14) without "
                "attention heads, which this toolkit does not read. Use the 2023 checkpoint."
            )
        raise ModelError(f"{where} has no '{_AUDIO}*' tensors: it is not Microsoft CLAP 2023")
    audio = from_upstream(below(state, _AUDIO))
    encoder = HTSAT(read_config(audio, where))
    load_strict(encoder, audio, f"the audio encoder of {where}")
    return AudioTextModel(
        name=f"msclap:{ref}",
        family="msclap",
        # The checkpoint's own filters decide: upstream builds them for 32 kHz and feeds 44.1 kHz.
        front_end=build_front_end(specs.MSCLAP, state.get(f"{_AUDIO}logmel_extractor.melW")),
        encoder=encoder,
        head=_projection(below(state, "audio_encoder.projection."), where),
        text=_text(state, where, text_heads),
        logit_scale=math.exp(float(get(state, "logit_scale", where))),
        sha256=sha256_of(path),
    )


def _projection(state: StateDict, where: str) -> ResidualMLP:
    first = get(state, "linear1.weight", f"the projection of {where}")
    head = ResidualMLP(first.shape[1], first.shape[0])
    load_strict(head, state, f"the projection of {where}")
    return head


def _text(state: StateDict, where: str, n_heads: int | None) -> TransformersText:
    tensors = below(state, "caption_encoder.base.")
    place = f"the caption encoder of {where}"
    words = get(tensors, "wte.weight", place)
    blocks = {key.split(".")[1] for key in tensors if key.startswith("h.")}
    config = {
        "vocab_size": words.shape[0],
        "n_embd": words.shape[1],
        "n_positions": get(tensors, "wpe.weight", place).shape[0],
        "n_layer": len(blocks),
        "n_head": n_heads or words.shape[1] // 64,
    }
    head = _projection(below(state, "caption_encoder.projection."), where)
    tokenizer = TokenizerSpec("gpt2", suffix=" <|endoftext|>", pad_token="!")
    text = TransformersText("gpt2", config, "last-nonzero", head, tokenizer)
    # Causal-mask buffers that older transformers versions saved.
    load_strict(text.backbone, tensors, place, ignore=(".attn.bias", ".attn.masked_bias"))
    return text
