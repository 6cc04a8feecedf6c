"""ClapModel folders of other shapes than the released ones, against transformers itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from residual_audio.errors import ModelError
from residual_audio.models import hf

AUDIO = {
    "hidden_size": 96, "depths": [1, 1, 2, 1], "num_attention_heads": [1, 2, 4, 8],
    "patch_embeds_hidden_size": 12, "window_size": 8,
}  # fmt: skip
TEXT = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 20,
}  # fmt: skip


def upstream(folder: Path, audio: dict[str, Any], **top: Any) -> Any:
    from transformers import ClapConfig, ClapModel

    torch.manual_seed(0)
    config = ClapConfig(audio_config={**AUDIO, **audio}, text_config=TEXT, projection_dim=20, **top)
    model = ClapModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif parameter.ndim > 1:
                inner = parameter[0].numel()
                parameter.copy_(torch.randn_like(parameter) * 0.8 / inner**0.5)
    model.save_pretrained(folder)
    return model


def of(found: Any) -> Tensor:
    return normalize(getattr(found, "pooler_output", found), dim=-1)


@pytest.mark.parametrize(
    ("audio", "top"),
    [
        ({"qkv_bias": False}, {}),
        ({"layer_norm_eps": 1e-3}, {}),
        ({"window_size": 4, "mlp_ratio": 2.0, "num_attention_heads": [2, 2, 4, 4]}, {}),
        ({"num_mel_bins": 32, "depths": [2, 1, 1, 2]}, {}),
        ({}, {"projection_hidden_act": "gelu"}),
    ],
    ids=["no biases", "norms", "windows and heads", "mels and depths", "gelu"],
)
@torch.no_grad()
def test_other_shapes(audio: dict[str, Any], top: dict[str, Any], tmp_path: Path) -> None:
    theirs = upstream(tmp_path, audio, **top)
    ours = hf.load(str(tmp_path))
    assert ours.text is not None
    draw = torch.Generator().manual_seed(1)
    mel = 0.3 * torch.randn(2, 1001, audio.get("num_mel_bins", 64), generator=draw)
    want = of(theirs.get_audio_features(input_features=mel[:, None]))
    found = of(ours.joint(ours.encode(mel)))
    torch.testing.assert_close(found, want, atol=1e-5, rtol=0)
    ids = torch.randint(3, 50, (2, 7), generator=draw)
    mask = torch.ones_like(ids)
    want = of(theirs.get_text_features(input_ids=ids, attention_mask=mask))
    torch.testing.assert_close(of(ours.text.encode(ids, mask)), want, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_act": "relu"}, "activation relu"),
        ({"patch_stride": [2, 2]}, "step between patches"),
        ({"projection_hidden_act": "silu"}, "activation 'silu'"),
    ],
)
def test_what_tensors_do_not_show_is_refused(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    upstream(tmp_path, {})
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["audio_config"] |= change
    if "projection_hidden_act" in change:
        config |= change
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=said):
        hf.load(str(tmp_path))
