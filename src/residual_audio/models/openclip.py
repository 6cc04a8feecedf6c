"""open_clip's CLAP models: HTS-AT or Whisper with RoBERTa or CLIP text, from a folder or a file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from residual_audio.audio import specs
from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import ModelError
from residual_audio.models.checkpoint_files import read_model_json
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Encoder
from residual_audio.models.frontends import build_front_end
from residual_audio.models.hf import find_folder
from residual_audio.models.htsat import HTSAT
from residual_audio.models.joint import GELUMLP, MLP, JointHead, UnitMLP
from residual_audio.models.openclip_text import read_text, two_layers
from residual_audio.models.swin_names import from_upstream, read_config
from residual_audio.models.weights import (
    StateDict,
    below,
    get,
    load_strict,
    read_checkpoint,
    sha256_of,
)
from residual_audio.models.whisper_names import OPENAI, read_encoder

CONFIG = "open_clip_config.json"
WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
_WHISPER_HEADS = {"tiny": 6, "base": 8, "small": 12, "medium": 16, "large": 20, "turbo": 20}
_FILL = {"repeatpad": "repeat-pad", "repeat": "repeat-cut", "pad": "zero-pad"}


def load(ref: str) -> AudioTextModel:
    """`ref` is a folder with open_clip_config.json and weights, a repository id, or a weights file;
    `?config=<json>` names a config that lies elsewhere."""
    place, _, option = ref.partition("?")
    path, config_path = _find(place, option, ref)
    where = f"'{path}'"
    said = read_model_json(config_path)
    config = said.get("model_cfg", said)
    audio, text = config.get("audio_cfg"), config.get("text_cfg")
    if not isinstance(audio, dict) or not isinstance(text, dict):
        raise ModelError(
            f"'{config_path}' has no audio_cfg and text_cfg: it is no CLAP model of open_clip"
        )
    state = _read(path)
    encoder, spec, filters = _tower(state, audio, where)
    preprocess = {**(said.get("preprocess_cfg") or {})}
    fill = preprocess.get("data_fill", "repeatpad")
    if fill not in _FILL:
        raise ModelError(
            f"'{config_path}' fills short clips by '{fill}'; known: {', '.join(_FILL)}"
        )
    spec = replace(
        spec,
        short=_FILL[fill],  # type: ignore[arg-type]
        quantise=bool(preprocess.get("int16_normalize", False)),
    )
    return AudioTextModel(
        name=f"openclip:{ref}",
        family="openclip",
        front_end=build_front_end(spec, filters),
        encoder=encoder,
        head=_head(state, audio, where),
        text=read_text(
            below(state, "text."), text, bool(config.get("quick_gelu")), path.parent, where
        ),
        logit_scale=math.exp(float(get(state, "logit_scale", where))),
        sha256=sha256_of(path),
    )


def _find(place: str, option: str, ref: str) -> tuple[Path, Path]:
    """The weights and the config."""
    key, _, value = option.partition("=")
    if option and key != "config":
        raise ModelError(f"'openclip:{ref}': the only option is ?config=<file.json>")
    path = Path(place).expanduser()
    if not path.is_file():
        if path.suffix in _SUFFIXES:
            raise ModelError(f"no file '{path}': a checkpoint of open_clip was expected there")
        folder = find_folder(place, "openclip")
        named = [folder / name for name in WEIGHTS if (folder / name).is_file()]
        found = named or sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES)
        if not named and len(found) != 1:
            raise ModelError(
                f"'{folder}' holds {len(found)} files of weights; name the one to open, or put it "
                f"there as {WEIGHTS[0]}"
            )
        path = found[0]
    config = Path(value).expanduser() if value else path.parent / CONFIG
    if not config.is_file():
        raise ModelError(
            f"'{config}' is not there: weights of open_clip do not say which activation their "
            f"projection has, so the model's config is needed. Put it beside them as {CONFIG}, or "
            f"name it: openclip:{place}?config=<file.json>"
        )
    return path, config


def _read(path: Path) -> StateDict:
    """Tensors without what training puts before their names."""
    found = read_checkpoint(path, "state_dict")
    state = {
        key.removeprefix("module.").removeprefix("_orig_mod."): value
        for key, value in found.items()
    }
    if not any(key.startswith("audio.encoder.") for key in state):
        raise ModelError(
            f"'{path}' has no 'audio.encoder.*' tensors: it is no CLAP model of open_clip"
        )
    return state


def _tower(
    state: StateDict, audio: Mapping[str, Any], where: str
) -> tuple[Encoder, FrontEndSpec, Any]:
    """The encoder, its front-end and the filters that the file holds."""
    kind = str(audio.get("model_type", "HTSAT")).lower()
    if kind == "whisper":
        return *_whisper(state, audio, where), None
    if kind != "htsat":
        raise ModelError(
            f"{where} has an audio encoder of the kind '{kind}'; known: HTSAT and whisper"
        )
    tensors = from_upstream(below(state, "audio.encoder."))
    fused = bool(audio.get("enable_fusion", False))
    if fused and audio.get("fusion_type", "aff_2d") != "aff_2d":
        raise ModelError(f"{where} has the fusion '{audio['fusion_type']}'; only aff_2d is known")
    encoder = HTSAT(read_config(tensors, where))
    if encoder.config.fusion != fused:
        raise ModelError(f"the config of {where} says fusion {fused}, its tensors the opposite")
    load_strict(encoder, tensors, f"the audio encoder of {where}")
    released = specs.HF_FUSION if fused else specs.HF
    spec = replace(
        released,
        sample_rate_hz=int(audio.get("sample_rate", 48_000)),
        n_samples=int(audio.get("clip_samples", 480_000)),
        n_fft=int(audio.get("window_size", 1024)),
        hop_length=int(audio.get("hop_size", 480)),
        n_mels=int(audio.get("mel_bins", 64)),
        f_min_hz=float(audio.get("fmin", 50)),
        f_max_hz=float(audio.get("fmax", 14_000)),
    )
    if spec.n_mels != encoder.config.n_mels:
        raise ModelError(
            f"the config of {where} says {spec.n_mels} mels, its encoder takes "
            f"{encoder.config.n_mels}"
        )
    # With fusion the features are made outside of the model, with other filters.
    filters = None if fused else state.get("audio.encoder.logmel_extractor.melW")
    return encoder, spec, filters


def _whisper(
    state: StateDict, audio: Mapping[str, Any], where: str
) -> tuple[Encoder, FrontEndSpec]:
    name = str(audio.get("model_name", "tiny"))
    size = re.split(r"[.-]", name)[0]  # tiny.en and large-v2 are of the size before the mark
    if size not in _WHISPER_HEADS:
        raise ModelError(f"{where} is Whisper '{name}'; known sizes: {', '.join(_WHISPER_HEADS)}")
    outside = ("proj.", "audio_bos_eos_token.")
    tensors = {
        key: value
        for key, value in below(state, "audio.encoder.").items()
        if not key.startswith(outside)
    }
    encoder = read_encoder(tensors, OPENAI, _WHISPER_HEADS[size], where, halve=True)
    # Upstream's bundled filters are on the HTK scale, unlike OpenAI's, and its other settings of
    # the front-end are fixed. Its log has a floor below the loudest bin of a batch, here of a clip.
    spec = replace(
        specs.WHISPER,
        mel_scale="htk",
        sample_rate_hz=int(audio.get("sample_rate", 48_000)),
        filter_rate_hz=specs.WHISPER.sample_rate_hz,
        n_samples=int(audio.get("clip_samples", 480_000)),
    )
    frames = spec.count_frames(spec.n_samples)
    if frames != encoder.config.n_frames:
        raise ModelError(
            f"the config of {where} makes {frames} frames, its encoder takes "
            f"{encoder.config.n_frames}"
        )
    return encoder, spec


def _head(state: StateDict, audio: Mapping[str, object], where: str) -> JointHead:
    """audio.proj, and before it Whisper's own projection and the step to unit length."""
    gelu = audio.get("proj_act", "gelu") != "relu"
    place = f"the projection of {where}"
    plain = two_layers(below(state, "audio.proj."), GELUMLP if gelu else MLP, place)
    first = below(state, "audio.encoder.proj.")
    if str(audio.get("model_type", "HTSAT")).lower() != "whisper":
        first = {}
    if audio.get("pre_norm") or audio.get("training_head"):
        return _unit_head(plain, first, gelu, place)
    return _folded(plain, first, place) if first else plain


def _unit_head(plain: MLP | GELUMLP, first: StateDict, gelu: bool, where: str) -> UnitMLP:
    sizes = dict(plain.config)
    d_first = len(get(first, "weight", where)) if first else 0
    if first:
        sizes["d_in"] = first["weight"].shape[1]
    head = UnitMLP(**sizes, gelu=gelu, d_first=d_first)
    entering = {f"first.{key}": value for key, value in first.items()}
    load_strict(head, {**plain.state_dict(), **entering}, where)
    return head


def _folded(plain: MLP | GELUMLP, first: StateDict, where: str) -> MLP | GELUMLP:
    """Two linear maps in a row are one: W₁ (W x + b) + b₁, formed in float64."""
    weight, bias = (get(first, name, where).double() for name in ("weight", "bias"))
    state = {key: value.double() for key, value in plain.state_dict().items()}
    state["linear1.bias"] = state["linear1.bias"] + state["linear1.weight"] @ bias
    state["linear1.weight"] = state["linear1.weight"] @ weight
    sizes = {**plain.config, "d_in": weight.shape[1]}
    head = type(plain)(**sizes)
    load_strict(head, {key: value.float() for key, value in state.items()}, where)
    return head
