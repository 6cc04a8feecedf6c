"""MGA-CLAP checkpoints: value path, frame projection, shared codebook and sparsemax."""

from __future__ import annotations

from residual_audio.audio import specs
from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.htsat import HTSAT
from residual_audio.models.joint import FrameCodebook
from residual_audio.models.swin_names import from_upstream, read_config
from residual_audio.models.text import TokenizerSpec, TransformersText, Words, read_bert_config
from residual_audio.models.weights import (
    StateDict,
    below,
    get,
    load_strict,
    read_checkpoint,
    require_file,
    sha256_of,
)

_AUDIO = "audio_encoder.audio_enc."
_TEXT = "text_encoder.text_encoder."


def load(ref: str, *, text_heads: int | None = None) -> AudioTextModel:
    """`ref` is an MGA-CLAP checkpoint (.pt/.pth, or its tensors as .safetensors)."""
    path = require_file(ref, "an MGA-CLAP checkpoint")
    where = f"'{path}'"
    state = read_checkpoint(path, "model")
    if not any(key.startswith(_AUDIO) for key in state) or "codebook" not in state:
        raise ModelError(f"{where} has no '{_AUDIO}*' tensors and codebook: it is not MGA-CLAP")
    audio = from_upstream(below(state, _AUDIO))
    encoder = HTSAT(read_config(audio, where, value_path=True, pool="max"))
    load_strict(encoder, audio, f"the audio encoder of {where}")
    codes = get(state, "codebook", where)
    fold = encoder.config.spec_size // encoder.config.n_mels
    head = FrameCodebook(encoder.config.latent, codes.shape[1], codes.shape[0], fold)
    projection = _prefixed(below(state, "frame_proj."), codes)
    load_strict(head, projection, f"the frame projection of {where}")
    filters = state.get(f"{_AUDIO}audio_feats_extractor.log_trans.melW")
    return AudioTextModel(
        name=f"mga:{ref}",
        family="mga",
        front_end=build_front_end(specs.MGA, filters),
        encoder=encoder,
        head=head,
        text=_text(state, where, text_heads),
        logit_scale=1.0 / float(get(state, "temp", where)),
        sha256=sha256_of(path),
    )


def _prefixed(projection: StateDict, codes: object) -> StateDict:
    return {**{f"proj.{key}": value for key, value in projection.items()}, "codebook.codes": codes}  # type: ignore[dict-item]


def _text(state: StateDict, where: str, n_heads: int | None) -> TransformersText:
    tensors = below(state, _TEXT)
    place = f"the text encoder of {where}"
    config = read_bert_config(tensors, place, n_heads)
    codes = get(state, "codebook", where)
    head = Words(config["hidden_size"], codes.shape[1], codes.shape[0])
    load_strict(
        head, _prefixed(below(state, "word_proj."), codes), f"the word projection of {where}"
    )
    tokenizer = TokenizerSpec("bert-base-uncased", max_length=30, padding="longest")
    text = TransformersText("bert-no-pooler", config, "words", head, tokenizer)
    load_strict(text.backbone, tensors, place, ignore=("position_ids", "pooler."))
    return text
