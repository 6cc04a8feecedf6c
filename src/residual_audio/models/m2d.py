"""M2D-CLAP folders (2025 and 2024), and plain M2D encoders without a text side.

The folder's name carries the configuration, as upstream reads it:

    m2d_clap_vit_base-80x1001p16x16p16kpBpTI-2025
                      │       │     │  │ └ the text encoder is in the checkpoint
                      │       │     │  └ text encoder: A GTE, B BERT, N NV-Embed (A if not given)
                      │       │     └ sample rate (16k if not given)
                      │       └ mels × frames of a patch
                      └ mels × frames that the position table is made for

A long clip is not cut: the encoder reads all of it in chunks, as upstream does.
`?features=stacked` after the name gives M2D's general audio features instead of the CLAP embedding:
mean over time, frequency rows side by side (3,840 numbers for ViT-B), without a text side.
"""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from residual_audio.audio import specs
from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.joint import MLP, Identity, JointHead, Semantic
from residual_audio.models.m2d_text import load_text, name_mlp
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.models.vit_names import count_blocks
from residual_audio.models.weights import (
    StateDict,
    below,
    get,
    load_strict,
    read_checkpoint,
    require_file,
    sha256_of,
)

_NAME = re.compile(
    r"(?P<model>[^-]+)-(?P<mels>\d+)x(?P<frames>\d+)p(?P<patch_mels>\d+)x(?P<patch_frames>\d+)"
    r"(?:p(?P<rate>16k|32k))?(?:p(?P<text>[ABN]))?(?P<included>pTI)?(?:-.*)?"
)
_FRONT_ENDS = {
    "16k": specs.M2D,
    "32k": replace(specs.M2D, sample_rate_hz=32_000, n_fft=800, hop_length=320, f_max_hz=16_000.0),
}
_TRAINING_ONLY = (
    "mask_token",
    "decoder_embed.",
    "decoder_pos_embed",
    "decoder_blocks.",
    "decoder_norm.",
    "decoder_pred.",
    "target_blocks.",
    "target_norm.",
    "offline_predictor.",
    "logit_scale",
)
_NORM_STATS = (-7.1, 4.2)
"""Mean and deviation of the log-mel where a checkpoint (2022, 2024) does not hold them."""
_TEMPERATURE = 0.07
"""Of the contrastive loss at the start of training, where the learned one was not released."""


@dataclass(frozen=True)
class FolderName:
    """What a folder's name says."""

    model: str
    n_mels: int
    n_frames: int
    patch: tuple[int, int]
    rate: str
    text: str

    @property
    def depth(self) -> int:
        """M2D comes as ViT-B and ViT-L."""
        return 24 if "vit_large" in self.model else 12

    @property
    def n_heads(self) -> int:
        return 16 if "vit_large" in self.model else 12

    @property
    def is_clap(self) -> bool:
        return "clap" in self.model


def load(
    ref: str,
    *,
    features: str = "flat",
    text_encoder: str | None = None,
    text_heads: int | None = None,
) -> AudioTextModel:
    """`ref` is a folder or a checkpoint in it; `?features=…&text_encoder=…` may follow.

    `text_heads` is for text encoders whose heads are not 64 wide.
    """
    place, _, query = ref.partition("?")
    options = dict(part.partition("=")[::2] for part in query.split("&") if part)
    features = options.pop("features", features)
    text_encoder = options.pop("text_encoder", text_encoder)
    heads = options.pop("text_heads", "")
    if options or (heads and not heads.isdecimal()):
        raise ModelError(
            f"'{ref}': cannot read its options; they are features=flat or stacked, "
            "text_encoder=<folder> and text_heads=<number>"
        )
    if features not in ("flat", "stacked"):
        raise ModelError(f"'{ref}': features are 'flat' or 'stacked', not '{features}'")
    path = find_checkpoint(place)
    where = f"'{path}'"
    name = read_name(path)
    parts = _split(read_state(path), where)
    proj, text_proj = below(parts.audio, "audio_proj."), below(parts.audio, "text_proj.")
    encoder = _encoder(parts.audio, name, stacked=features == "stacked", where=where)
    head: JointHead = Identity(encoder.config.latent)
    text = None
    if features == "flat" and (name.is_clap or proj):
        # Variants trained with a text projection alone have nothing on the audio side.
        if proj or not text_proj:
            head = _head(proj, where)
        text = load_text(
            name.text,
            parts.text,
            text_proj,
            path.parent,
            where,
            given=text_encoder,
            n_heads=int(heads) if heads else text_heads,
        )
    return AudioTextModel(
        name=f"m2d:{ref}",
        family="m2d",
        front_end=build_front_end(_spec(name, parts.audio.get("norm_stats"))),
        encoder=encoder,
        head=head,
        text=text,
        logit_scale=1 / _TEMPERATURE if parts.scale is None else math.exp(float(parts.scale)),
        sha256=sha256_of(path),
    )


def find_checkpoint(ref: str) -> Path:
    """A file as it is; of a folder, the one checkpoint in it."""
    path = Path(ref).expanduser()
    if not path.is_dir():
        return require_file(path, "an M2D-CLAP checkpoint or its folder").absolute()
    for pattern in ("*.safetensors", "checkpoint-*.pth", "*.pth"):
        found = sorted(path.absolute().glob(pattern))
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise ModelError(f"'{path}' holds several checkpoints ({names}): name one of them")
        if found:
            return found[0]
    raise ModelError(f"'{path}' holds no checkpoint-*.pth and no *.safetensors")


def read_name(path: Path) -> FolderName:
    """The configuration in the name of the checkpoint's folder, or in its own."""
    found = _NAME.fullmatch(path.parent.name) or _NAME.fullmatch(path.stem)
    if found is None:
        raise ModelError(
            f"the folder '{path.parent.name}' does not say how M2D was built. Keep its released "
            "name, e.g. m2d_clap_vit_base-80x1001p16x16p16kpBpTI-2025: mels x frames, patch, "
            "sample rate and text encoder are read from it"
        )
    return FolderName(
        model=found["model"],
        n_mels=int(found["mels"]),
        n_frames=int(found["frames"]),
        patch=(int(found["patch_mels"]), int(found["patch_frames"])),
        rate=found["rate"] or "16k",
        text=found["text"] or "A",
    )


def read_state(path: Path) -> StateDict:
    """Tensors of the checkpoint; what it was trained with is an argparse.Namespace beside them."""
    state = read_checkpoint(path, "model", allow=(argparse.Namespace,))
    if not any("patch_embed." in key for key in state):
        raise ModelError(f"'{path}' has no 'patch_embed.*' tensors: it is not an M2D checkpoint")
    return state


@dataclass(frozen=True)
class Parts:
    """A checkpoint's tensors, those of training left out."""

    audio: StateDict
    text: StateDict
    scale: Tensor | None


def _split(state: StateDict, where: str) -> Parts:
    """2025: `backbone.` and `text_encoder.` beside it; 2024: everything at the top."""
    text = below(state, "text_encoder.")
    rest = {key: v for key, v in state.items() if not key.startswith("text_encoder.")}
    audio = below(rest, "backbone.") or rest
    outside = {} if audio is rest else {k: v for k, v in rest.items() if k[:9] != "backbone."}
    scale = outside.pop("logit_scale", audio.get("logit_scale"))
    if outside:
        raise ModelError(f"{where} has tensors of no known part: {', '.join(sorted(outside)[:8])}")
    audio = {k: v for k, v in audio.items() if not k.startswith(_TRAINING_ONLY)}
    return Parts(audio, text, scale)


def _spec(name: FolderName, stats: Tensor | None) -> FrontEndSpec:
    mean, std = _NORM_STATS if stats is None else stats.tolist()
    spec = _FRONT_ENDS[name.rate]
    n_samples = (name.n_frames - 1) * spec.hop_length
    return replace(spec, n_samples=n_samples, n_mels=name.n_mels, mean=mean, std=std)


def _encoder(tensors: StateDict, name: FolderName, stacked: bool, where: str) -> ViT:
    place = f"the audio encoder of {where}"
    cls, positions = get(tensors, "cls_token", place), get(tensors, "pos_embed", place)
    state = {
        key.replace("patch_embed.proj.", "stem.conv."): value
        for key, value in _blocks(tensors).items()
        if key not in ("cls_token", "pos_embed", "norm_stats")
        and not key.startswith(("audio_proj.", "text_proj."))
    }
    state |= {"special": cls[0], "positions": positions[0]}
    config = ViTConfig(
        width=cls.shape[-1],
        depth=name.depth,
        n_heads=name.n_heads,
        hidden=get(tensors, "blocks.0.mlp.fc1.bias", place).shape[0],
        n_mels=name.n_mels,
        n_frames=name.n_frames,
        norm_eps=1e-6,
        patch=name.patch,
        stride=name.patch,
        n_special=1,
        pool="stack" if stacked else "patches",
        chunks=True,
    )
    encoder = ViT(config)
    load_strict(encoder, state, place)
    return encoder


def _head(tensors: StateDict, where: str) -> JointHead:
    place = f"the audio projection of {where}"
    head: JointHead
    if "sem_token" in tensors:
        state = {key.replace("sem_", ""): value for key, value in _blocks(tensors).items()}
        hidden = get(tensors, "sem_blocks.0.mlp.fc1.bias", place).shape[0]
        head = Semantic(tensors["sem_token"].shape[-1], hidden, count_blocks(state))
    else:
        first, second = get(tensors, "0.weight", place), get(tensors, "2.weight", place)
        state = name_mlp(tensors)
        head = MLP(first.shape[1], first.shape[0], second.shape[0])
    load_strict(head, state, place)
    return head


def _blocks(tensors: StateDict) -> StateDict:
    """timm's `blocks.0.attn.qkv`, `blocks.0.mlp.fc1` → `blocks.0.qkv`, `blocks.0.fc1`."""
    return {key.replace(".attn.", ".").replace(".mlp.", "."): v for key, v in tensors.items()}
