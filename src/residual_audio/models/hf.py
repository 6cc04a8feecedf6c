"""Hugging Face `ClapModel` folders and repositories, fused and unfused; and writing them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from residual_audio.audio import specs
from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import ModelError
from residual_audio.models.checkpoint_files import read_model_json, said_type, write_folder
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end, refuse_unsaid
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.hub import hub_reachable
from residual_audio.models.joint import GELUMLP, MLP
from residual_audio.models.swin_geometry import raster_relative_index
from residual_audio.models.swin_names import from_transformers, read_config, to_transformers
from residual_audio.models.text import TokenizerSpec, TransformersText
from residual_audio.models.weights import (
    StateDict,
    below,
    get,
    load_strict,
    read_pickle,
    read_safetensors,
    safetensors_names,
    sha256_of,
)

_SHORT = {"repeatpad": "repeat-pad", "repeat": "repeat-cut", "pad": "zero-pad"}
_SAID = (
    "sample_rate_hz",
    "n_samples",
    "n_fft",
    "hop_length",
    "n_mels",
    "f_min_hz",
    "f_max_hz",
    "short",
)
"""Settings of a front-end that preprocessor_config.json holds."""
_PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.txt.gz", "*pytorch_model*.bin", "README.md"]
_NEEDED = {
    "hf": "config.json, model.safetensors, preprocessor_config.json and tokenizer.json",
    "pe-audio": "config.json, model.safetensors, preprocessor_config.json and tokenizer.json",
    "openclip": "open_clip_config.json, open_clip_model.safetensors and tokenizer.json",
    "ast": "config.json, model.safetensors and preprocessor_config.json",
    "whisper": "config.json, model.safetensors and preprocessor_config.json",
}
"""Files of a folder, by family."""


def load(ref: str) -> AudioTextModel:
    """`ref` is a folder or a repository id such as `laion/clap-htsat-unfused`."""
    folder = find_folder(ref)
    config = read_model_json(folder / "config.json")
    if config.get("model_type") != "clap":
        raise ModelError(
            f"'{ref}' {said_type(config)}, not CLAP; "
            "for others use pe-audio:<folder>, ast:<folder> or whisper:<folder>"
        )
    state, sha256 = read_folder_weights(folder)
    audio = config["audio_config"]
    _check_audio(audio, ref)
    encoder = _encoder(below(state, "audio_model.audio_encoder."), audio, ref)
    kind = _activation(config, ref)
    head = _projection(below(state, "audio_projection."), ref, kind)
    text = _text(state, config["text_config"], folder, ref, kind)
    return AudioTextModel(
        name=f"hf:{ref}",
        family="hf",
        front_end=build_front_end(front_end_spec(folder, bool(audio.get("enable_fusion")))),
        encoder=encoder,
        head=head,
        text=text,
        logit_scale=math.exp(float(get(state, "logit_scale_a", ref))),
        sha256=sha256,
    )


def _check_audio(audio: dict[str, Any], ref: str) -> None:
    """Refuse what the tensors do not show and the encoder would do otherwise."""
    size, stride = audio.get("patch_size", 4), audio.get("patch_stride", 4)
    steps = {stride} if isinstance(stride, int) else set(stride)
    for name, said, known in (
        ("activation", audio.get("hidden_act", "gelu"), "gelu"),
        ("step between patches", sorted(steps), [size]),
    ):
        if said != known:
            raise ModelError(f"'{ref}' has the {name} {said}; only {known} is known")


def _activation(config: dict[str, Any], ref: str) -> type[MLP] | type[GELUMLP]:
    """Of both projections: what the top of the config says counts for its parts too."""
    said = config.get("projection_hidden_act")
    said = said or config["audio_config"].get("projection_hidden_act") or "relu"
    if said not in ("relu", "gelu"):
        raise ModelError(
            f"the projections of '{ref}' have the activation '{said}'; known: relu, gelu"
        )
    return MLP if said == "relu" else GELUMLP


def find_folder(ref: str, family: str = "hf") -> Path:
    """A local folder as it is; else the Hugging Face cache; else, when online, the hub.

    `owner/name@revision` asks for a commit, tag or branch; without one it is what the cache has
    or, from the hub, its main branch.
    """
    folder = Path(ref).expanduser()
    if folder.is_dir():
        return folder
    repository, _, asked = ref.partition("@")
    revision = asked or None
    if folder.exists() or ref.startswith((".", "/", "~")) or ref.count("/") != 1:
        raise ModelError(f"'{ref}' is neither a folder nor a repository id like owner/name")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(
            snapshot_download(
                repository, revision=revision, allow_patterns=_PATTERNS, local_files_only=True
            )
        )
    except (LocalEntryNotFoundError, OSError):
        pass
    if not hub_reachable():
        raise ModelError(_absent(family, ref, "the hub cannot be reached"))
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=_PATTERNS))
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no answer"
        raise ModelError(
            _absent(family, ref, f"the hub does not hand it out ({status})")
        ) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise ModelError(_absent(family, ref, "the hub cannot be reached")) from error


def _absent(family: str, ref: str, why: str) -> str:
    """Why there is no such model here, and what to put where."""
    repository, _, revision = ref.partition("@")
    name = repository.rpartition("/")[2]
    asked = f" --revision {revision}" if revision else ""
    return (
        f"'{ref}' is not in the Hugging Face cache, and {why}. On a machine with network run "
        f"`hf download {repository}{asked} --local-dir {name}`, copy that folder here and use "
        f"{family}:{name}; it needs {_NEEDED[family]}."
    )


def read_folder_weights(folder: Path, prefixes: tuple[str, ...] = ("",)) -> tuple[StateDict, str]:
    """Tensors of a transformers folder (single, sharded or .bin) and the sha256 of their files.

    Of a model that is a part of a larger one, only the tensors below the first of `prefixes` that
    is there, the prefix taken off; files without any of them are not read.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        names = safetensors_names(folder / "model.safetensors")
        placed = dict.fromkeys(names, "model.safetensors")
    elif index.is_file():
        placed = read_model_json(index)["weight_map"]
        if any(Path(name).name != name for name in placed.values()):
            raise ModelError(f"'{index}' names a file outside its folder; it was not read")
    elif (folder / "pytorch_model.bin").is_file():
        path = folder / "pytorch_model.bin"
        state = read_pickle(path)
        return below(state, _first_prefix(state, prefixes)), sha256_of(path)
    else:
        raise ModelError(f"'{folder}' has no model.safetensors (nor shards, nor pytorch_model.bin)")
    prefix = _first_prefix(placed, prefixes)
    files = [
        folder / name
        for name in sorted({name for key, name in placed.items() if key.startswith(prefix)})
    ]
    found: StateDict = {}
    for file in files:
        found.update(below(read_safetensors(file, prefix), prefix))
    return found, sha256_of(*files)


def _first_prefix(names: Iterable[str], prefixes: tuple[str, ...]) -> str:
    known = list(names)
    for prefix in prefixes:
        if any(name.startswith(prefix) for name in known):
            return prefix
    return prefixes[-1]


def front_end_spec(folder: Path, fusion: bool) -> FrontEndSpec:
    """What preprocessor_config.json says; the released values where there is none."""
    spec = specs.HF_FUSION if fusion else specs.HF
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return spec
    config = read_model_json(path)
    if config.get("truncation", "rand_trunc") == "rand_trunc":
        spec = replace(specs.HF, fusion=False)
    rate = int(config.get("sampling_rate", spec.sample_rate_hz))
    n_samples = int(config.get("nb_max_samples", config.get("max_length_s", 10) * rate))
    padding = config.get("padding", "repeatpad")
    if padding not in _SHORT:
        raise ModelError(f"'{path}' has padding '{padding}'; known: {', '.join(_SHORT)}")
    return replace(
        spec,
        sample_rate_hz=rate,
        n_samples=n_samples,
        n_fft=int(config.get("fft_window_size", spec.n_fft)),
        hop_length=int(config.get("hop_length", spec.hop_length)),
        n_mels=int(config.get("feature_size", spec.n_mels)),
        f_min_hz=float(config.get("frequency_min", spec.f_min_hz)),
        f_max_hz=float(config.get("frequency_max", spec.f_max_hz)),
        short=_SHORT[padding],  # type: ignore[arg-type]
    )


def _encoder(state: StateDict, audio: dict[str, Any], where: str) -> HTSAT:
    ours = from_transformers(state)
    if not audio.get("qkv_bias", True):
        weights = [key for key in ours if key.endswith(".qkv.weight")]
        ours |= {
            key.replace("weight", "bias"): ours[key].new_zeros(len(ours[key])) for key in weights
        }
    encoder = HTSAT(
        read_config(
            ours,
            where,
            spec_size=int(audio.get("spec_size", 256)),
            norm_eps=float(audio.get("layer_norm_eps", 1e-5)),
        )
    )
    load_strict(encoder, ours, f"the audio encoder of '{where}'")
    return encoder


def _projection(state: StateDict, where: str, kind: type[MLP] | type[GELUMLP]) -> MLP | GELUMLP:
    first = get(state, "linear1.weight", f"the projection of '{where}'")
    second = get(state, "linear2.weight", f"the projection of '{where}'")
    head = kind(first.shape[1], first.shape[0], second.shape[0])
    load_strict(head, state, f"the projection of '{where}'")
    return head


def _text(
    state: StateDict,
    config: dict[str, Any],
    folder: Path,
    where: str,
    kind: type[MLP] | type[GELUMLP],
) -> TransformersText:
    known = {key: value for key, value in config.items() if not key.startswith("_")}
    text = TransformersText(
        "clap-text",
        known,
        "pooler",
        _projection(below(state, "text_projection."), where, kind),
        TokenizerSpec(str(folder), padding="longest", max_length=512),
    )
    tensors = below(state, "text_model.")
    load_strict(
        text.backbone,
        tensors,
        f"the text tower of '{where}'",
        ignore=("position_ids", "token_type_ids"),
    )
    return text


def check_counterpart(model: AudioTextModel) -> tuple[HTSAT, MLP, TransformersText]:
    """The parts of a model that transformers' `ClapModel` can be; an error for any other."""
    encoder, head, text = model.encoder, model.head, model.text
    if (
        not isinstance(encoder, HTSAT)
        or not isinstance(head, MLP)
        or not isinstance(text, TransformersText)
        or not isinstance(text.head, MLP)
        or text.architecture not in ("clap-text", "roberta")
        or encoder.config.value_path
    ):
        raise ModelError(
            f"'{model.name}' ({model.family}) has no counterpart in transformers' ClapModel: "
            "that is HTS-AT with a two-layer ReLU head and a RoBERTa text tower. Use --to native."
        )
    released = specs.HF_FUSION if encoder.config.fusion else specs.HF
    refuse_unsaid(model.name, model.spec, released, "transformers' ClapModel", _SAID)
    if model.spec.short not in _SHORT.values():
        raise ModelError(
            f"'{model.name}' cannot be written as transformers' ClapModel: its short clips are "
            f"left as they are ('{model.spec.short}'), which has no word there. Use --to native."
        )
    return encoder, head, text


def save(model: AudioTextModel, out: Path) -> None:
    """Write a folder that transformers' `ClapModel.from_pretrained` opens."""
    encoder, joint, text = check_counterpart(model)
    log_scale = math.log(model.logit_scale)
    state: dict[str, Tensor] = {}
    for key, value in to_transformers(encoder.state_dict()).items():
        state[f"audio_model.audio_encoder.{key}"] = value
    for index, stage in enumerate(encoder.config.depths):
        table = raster_relative_index(min(encoder.config.window, encoder.config.grid(index)))
        for block in range(stage):
            place = f"audio_model.audio_encoder.layers.{index}.blocks.{block}.attention.self"
            state[f"{place}.relative_position_index"] = table
    for key, value in text.backbone.state_dict().items():
        state[f"text_model.{key}"] = value
    for name, head in (("audio_projection", joint), ("text_projection", text.head)):
        for key, value in head.state_dict().items():
            state[f"{name}.{key}"] = value
    for name in ("logit_scale_a", "logit_scale_t"):
        state[name] = value.new_tensor(log_scale)
    files = {
        "config.json": json.dumps(_clap_config(encoder.config, text, joint), indent=2),
        "preprocessor_config.json": json.dumps(_preprocessor_config(model.spec), indent=2),
    }
    write_folder(out, state, files, tokenizer_of=text)


def _clap_config(encoder: HTSATConfig, text: TransformersText, head: MLP) -> dict[str, object]:
    d_out = head.config["d_out"]
    text_config = {**text.backbone_config, "projection_dim": d_out, "model_type": "clap_text_model"}
    return {
        "architectures": ["ClapModel"],
        "model_type": "clap",
        "projection_dim": d_out,
        "text_config": text_config,
        "audio_config": {
            "model_type": "clap_audio_model",
            "window_size": encoder.window,
            "num_mel_bins": encoder.n_mels,
            "spec_size": encoder.spec_size,
            "patch_size": encoder.patch,
            "patch_stride": [encoder.patch, encoder.patch],
            "hidden_size": encoder.latent,
            "projection_dim": d_out,
            "depths": list(encoder.depths),
            "num_hidden_layers": len(encoder.depths),
            "num_attention_heads": list(encoder.n_heads),
            "enable_fusion": encoder.fusion,
            "fusion_type": "aff_2d" if encoder.fusion else None,
            "patch_embeds_hidden_size": encoder.embed_dim,
            "mlp_ratio": encoder.mlp_ratio,
            "layer_norm_eps": encoder.norm_eps,
        },
    }


def _preprocessor_config(spec: FrontEndSpec) -> dict[str, object]:
    paddings = {ours: theirs for theirs, ours in _SHORT.items()}
    return {
        "feature_extractor_type": "ClapFeatureExtractor",
        "processor_class": "ClapProcessor",
        "sampling_rate": spec.sample_rate_hz,
        "max_length_s": spec.n_samples // spec.sample_rate_hz,
        "nb_max_samples": spec.n_samples,
        "fft_window_size": spec.n_fft,
        "hop_length": spec.hop_length,
        "feature_size": spec.n_mels,
        "frequency_min": spec.f_min_hz,
        "frequency_max": spec.f_max_hz,
        "padding": paddings[spec.short],
        "truncation": "fusion" if spec.fusion else "rand_trunc",
        "top_db": None,
        "padding_value": 0.0,
        "return_attention_mask": False,
    }
