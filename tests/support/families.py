"""One small random model of every kind of encoder that is met in the wild."""

from __future__ import annotations

from dataclasses import replace

import torch
from tiny_model import CONFIG, SPEC, HashedText, tiny_model

from residual_audio.audio.codec_spec import CodecSpec
from residual_audio.models.codec import CodecFrames
from residual_audio.models.encoder import Encoder
from residual_audio.models.frontends import build_front_end
from residual_audio.models.htsat import HTSAT
from residual_audio.models.joint import MLP, FrameCodebook, Identity, JointHead, NormLinear
from residual_audio.models.rotary import Rotary, RotaryConfig
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.surface.model import Model

FAMILIES = ("htsat", "fusion", "mga", "ast", "whisper", "m2d", "pe-audio")
NO_DIRECT_PATH = ("mga",)
CODEC = replace(
    SPEC, codec=CodecSpec(width=2, strides=(4, 5, 8), hidden=8), n_fft=160, hop_length=160,
    n_mels=6, center=False, short="keep",
)  # fmt: skip


def family_model(family: str) -> Model:
    if family == "htsat":
        return tiny_model()
    torch.manual_seed(1)
    encoder, head = _parts(family)
    for module in (encoder, head):
        for name, parameter in module.named_parameters():
            if "norm" not in name:
                torch.nn.init.normal_(parameter, 0.0, 0.3 / max(1, parameter.shape[-1]) ** 0.25)
    spec = replace(SPEC, fusion=True) if family == "fusion" else SPEC
    spec = replace(spec, short="keep") if family == "m2d" else spec
    spec = CODEC if family == "pe-audio" else spec
    front_end = build_front_end(spec)
    if isinstance(front_end, CodecFrames):
        for parameter in front_end.parameters():
            inner = parameter[0].numel() if parameter.ndim > 1 else 1
            torch.nn.init.normal_(parameter, 1.0 if inner == 1 else 0.0, inner**-0.5)
    return Model(
        name=family,
        family=family,
        front_end=front_end,
        encoder=encoder,
        head=head,
        text=None if isinstance(head, Identity) else HashedText(),
        logit_scale=10.0,
        sha256=f"{FAMILIES.index(family)}" * 64,
    )


def _parts(family: str) -> tuple[Encoder, JointHead]:
    if family == "fusion":
        return HTSAT(replace(CONFIG, fusion=True)), MLP(CONFIG.latent, 16, 12)
    if family == "mga":
        config = replace(CONFIG, value_path=True, pool="max")
        return HTSAT(config), FrameCodebook(CONFIG.latent, 12, 24, CONFIG.spec_size // 16)
    if family == "pe-audio":
        rotary = RotaryConfig(
            width=16, depth=2, n_heads=4, d_head=6, hidden=24, n_features=CODEC.n_mels,
            norm_eps=1e-5, theta=20_000.0,
        )  # fmt: skip
        return Rotary(rotary), NormLinear(rotary.latent, 12)
    shape = {
        "ast": {"n_special": 2, "pool": "special"},
        "whisper": {"stem": "conv", "halve": True},
        "m2d": {"n_special": 1, "chunks": True},
    }[family]
    config = ViTConfig(
        width=16, depth=2, n_heads=4, hidden=24, n_mels=16, n_frames=51, norm_eps=1e-6,
        patch=(8, 8), stride=(8, 8), **shape,
    )  # fmt: skip
    return ViT(config), Identity(config.latent)
