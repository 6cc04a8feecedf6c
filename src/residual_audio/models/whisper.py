"""Whisper's encoder alone, its latent the mean over all positions: folders of transformers, files
of OpenAI, and the audio language models that are built on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from residual_audio.audio import specs
from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import ModelError
from residual_audio.models.checkpoint_files import read_model_json, said_type
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.hf import find_folder, read_folder_weights
from residual_audio.models.joint import Identity
from residual_audio.models.releases import openai_file
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.models.weights import below, read_pickle, sha256_of
from residual_audio.models.whisper_names import OPENAI, TRANSFORMERS, read_encoder

_SIZES = {
    "d_model": "hidden_size",
    "encoder_layers": "num_hidden_layers",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_ffn_dim": "intermediate_size",
}
"""Width, depth, heads and MLP in a config.json: Whisper's names and those of Audio Flamingo."""
_DIMS = ("n_mels", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer")


@dataclass(frozen=True)
class Host:
    """A model of transformers that holds Whisper's encoder."""

    config: str | None
    """Where in config.json the encoder's is; None for the top."""
    prefixes: tuple[str, ...]
    """Where its tensors are; the first that is there counts."""
    halve: bool = False
    """Neighbouring positions are averaged before the final norm."""


HOSTS = {
    "whisper": Host(None, ("model.encoder.", "encoder.", "")),
    "qwen2_audio": Host("audio_config", ("model.audio_tower.", "audio_tower."), halve=True),
    "qwen2_audio_encoder": Host(None, ("audio_tower.", ""), halve=True),
    "audioflamingo3": Host("audio_config", ("model.audio_tower.", "audio_tower."), halve=True),
    "audioflamingo3_encoder": Host(None, ("audio_tower.", ""), halve=True),
    "musicflamingo": Host("audio_config", ("model.audio_tower.", "audio_tower."), halve=True),
}
"""By the `model_type` of a folder."""


def load(ref: str) -> AudioTextModel:
    """`ref` is a folder, a repository id such as `openai/whisper-tiny`, OpenAI's own `.pt`, or the
    name (`tiny.en`) of one that OpenAI's package has downloaded."""
    path = Path(openai_file(ref)).expanduser()
    if path.is_file() or path.suffix in (".pt", ".pth"):
        return _load_file(path, ref)
    folder = find_folder(ref, "whisper")
    config = read_model_json(folder / "config.json")
    host = HOSTS.get(str(config.get("model_type")))
    if host is None:
        raise ModelError(
            f"'{ref}' {said_type(config)}, not Whisper; models known to hold "
            f"its encoder: {', '.join(HOSTS)}"
        )
    inner = config if host.config is None else config.get(host.config)
    encoder, sha256 = _from_folder(folder, host, inner, ref)
    return _model(ref, encoder, front_end_spec(folder, encoder.config), sha256)


def _model(ref: str, encoder: ViT, spec: FrontEndSpec, sha256: str) -> AudioTextModel:
    return AudioTextModel(
        name=f"whisper:{ref}",
        family="whisper",
        front_end=build_front_end(spec),
        encoder=encoder,
        head=Identity(encoder.config.latent),
        text=None,
        logit_scale=1.0,
        sha256=sha256,
    )


def _from_folder(folder: Path, host: Host, config: object, ref: str) -> tuple[ViT, str]:
    if not isinstance(config, dict):
        raise ModelError(f"'{folder / 'config.json'}' has no {host.config}")
    if config.get("activation_function", "gelu") != "gelu":
        raise ModelError(
            f"'{ref}' has the activation '{config['activation_function']}'; only gelu is known"
        )
    said = {key: config.get(key, config.get(other)) for key, other in _SIZES.items()}
    sizes = {key: value for key, value in said.items() if isinstance(value, int)}
    if missing := [key for key in said if key not in sizes]:
        raise ModelError(f"'{folder / 'config.json'}' lacks {', '.join(missing)}")
    tensors, sha256 = read_folder_weights(folder, host.prefixes)
    n_heads = sizes["encoder_attention_heads"]
    encoder = read_encoder(tensors, TRANSFORMERS, n_heads, f"'{ref}'", halve=host.halve)
    _check_sizes(encoder, list(sizes.values()), f"'{folder / 'config.json'}'")
    return encoder, sha256


def _load_file(path: Path, ref: str) -> AudioTextModel:
    """OpenAI's checkpoint: `dims` and, under `model_state_dict`, the tensors."""
    if not path.is_file():
        raise ModelError(f"no file '{path}': a Whisper checkpoint of OpenAI was expected there")
    found = read_pickle(path)
    dims = found.get("dims") if isinstance(found, dict) else None
    state = found.get("model_state_dict") if isinstance(found, dict) else None
    if not isinstance(dims, dict) or not isinstance(state, dict):
        raise ModelError(
            f"'{path}' has no 'dims' and 'model_state_dict': it is no Whisper file of OpenAI"
        )
    missing = [key for key in _DIMS if not isinstance(dims.get(key), int)]
    if missing:
        raise ModelError(f"the 'dims' of '{path}' lack {', '.join(missing)}")
    encoder = read_encoder(below(state, "encoder."), OPENAI, dims["n_audio_head"], f"'{path}'")
    width, depth = dims["n_audio_state"], dims["n_audio_layer"]
    _check_sizes(encoder, [width, depth, dims["n_audio_head"], 4 * width], f"'{path}'")
    spec = replace(specs.WHISPER, n_mels=encoder.config.n_mels)
    return _model(ref, encoder, spec, sha256_of(path))


def _check_sizes(encoder: ViT, said: list[int], where: str) -> None:
    """Width, depth, heads and MLP as the file says, or it is not about these tensors."""
    config = encoder.config
    held = [config.width, config.depth, config.n_heads, config.hidden]
    if held != said:
        raise ModelError(f"{where} says width, depth, heads and MLP {said}, its tensors {held}")


def front_end_spec(folder: Path, encoder: ViTConfig) -> FrontEndSpec:
    """What preprocessor_config.json says; the released values where there is none."""
    path = folder / "preprocessor_config.json"
    config = read_model_json(path) if path.is_file() else {}
    spec = specs.WHISPER
    rate = int(config.get("sampling_rate", spec.sample_rate_hz))
    hop = int(config.get("hop_length", spec.hop_length))
    n_samples = encoder.n_frames * hop
    if "chunk_length" in config:
        n_samples = int(config["chunk_length"] * rate)
    spec = replace(
        spec,
        sample_rate_hz=rate,
        n_samples=n_samples,
        n_fft=int(config.get("n_fft", spec.n_fft)),
        hop_length=hop,
        n_mels=int(config.get("feature_size", encoder.n_mels)),
    )
    n_frames = spec.count_frames(spec.n_samples)
    if (spec.n_mels, n_frames) != (encoder.n_mels, encoder.n_frames):
        raise ModelError(
            f"'{path}' makes {n_frames} frames of {spec.n_mels} mels, the encoder takes "
            f"{encoder.n_frames} of {encoder.n_mels}"
        )
    return spec
