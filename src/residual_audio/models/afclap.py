"""AF-CLAP, the CLAP inside Audio Flamingo 2: LAION's layout, a wider HTS-AT, T5 for texts."""

from __future__ import annotations

import math
from pathlib import Path

from residual_audio.audio import specs
from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.htsat import HTSAT
from residual_audio.models.laion import read_projection, read_state
from residual_audio.models.swin_names import from_upstream, read_config
from residual_audio.models.text import TokenizerSpec, TransformersText
from residual_audio.models.weights import (
    StateDict,
    below,
    get,
    load_strict,
    require_file,
    sha256_of,
)

TOKENIZER = "google/flan-t5-large"


def load(ref: str) -> AudioTextModel:
    """`ref` is the checkpoint (`epoch_15.pt`, or its tensors as .safetensors); T5's vocabulary is
    looked for beside it, then in the Hugging Face cache."""
    path = require_file(ref, "an AF-CLAP checkpoint")
    state = read_state(path)
    audio = from_upstream(below(state, "audio_branch."))
    encoder = HTSAT(read_config(audio, f"'{path}'"))
    if not encoder.config.fusion:
        raise ModelError(f"'{path}' has no feature fusion: it is not AF-CLAP")
    load_strict(encoder, audio, f"the audio branch of '{path}'")
    return AudioTextModel(
        name=f"afclap:{ref}",
        family="afclap",
        front_end=build_front_end(specs.AFCLAP),
        encoder=encoder,
        head=read_projection(below(state, "audio_projection."), path),
        text=_text(state, path),
        logit_scale=math.exp(float(get(state, "logit_scale_a", f"'{path}'"))),
        sha256=sha256_of(path),
    )


def _text(state: StateDict, path: Path) -> TransformersText:
    """The mean over all 77 positions, padding included, as upstream takes it."""
    where = f"the text branch of '{path}'"
    tensors = below(state, "text_branch.")
    words = get(tensors, "shared.weight", where)
    own = (path.parent / "tokenizer.json").is_file() or (path.parent / "spiece.model").is_file()
    text = TransformersText(
        "t5-encoder",
        t5_config(tensors, where),
        "mean-all",
        read_projection(below(state, "text_projection."), path),
        TokenizerSpec(str(path.parent) if own else TOKENIZER, max_length=77),
    )
    load_strict(text.backbone, {"encoder.embed_tokens.weight": words, **tensors}, where)
    return text


def t5_config(tensors: StateDict, where: str) -> dict[str, object]:
    """T5's sizes, all of which its encoder's tensors show."""
    first = "encoder.block.0.layer."
    buckets, n_heads = get(
        tensors, f"{first}0.SelfAttention.relative_attention_bias.weight", where
    ).shape
    inner, width = get(tensors, f"{first}0.SelfAttention.q.weight", where).shape
    gated = f"{first}1.DenseReluDense.wi_0.weight" in tensors
    hidden = get(tensors, f"{first}1.DenseReluDense.wi{'_0' if gated else ''}.weight", where)
    blocks = {key.split(".")[2] for key in tensors if key.startswith("encoder.block.")}
    return {
        "vocab_size": get(tensors, "shared.weight", where).shape[0],
        "d_model": width,
        "d_kv": inner // n_heads,
        "d_ff": hidden.shape[0],
        "num_layers": len(blocks),
        "num_heads": n_heads,
        "relative_attention_num_buckets": buckets,
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "layer_norm_epsilon": 1e-6,
    }
