"""AF-CLAP: LAION's layout with T5, its text side against transformers with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from residual_audio.errors import ModelError
from residual_audio.models import afclap, laion, native
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.swin_names import to_upstream

D = 24


def t5(gated: bool) -> Any:
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(0)
    kind = "gated-gelu" if gated else "relu"
    sizes = {"d_model": 16, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 4}
    return T5EncoderModel(T5Config(vocab_size=40, feed_forward_proj=kind, **sizes)).eval()


def write(path: Path, text: Any) -> dict[str, torch.Tensor]:
    """A file as upstream's training leaves it, with the prefix of data-parallel training."""
    torch.manual_seed(1)
    encoder = HTSAT(
        HTSATConfig(embed_dim=4, depths=(1, 1, 1, 1), n_heads=(1, 1, 2, 4), fusion=True)
    )
    latent = encoder.config.latent
    state = {f"audio_branch.{k}": v for k, v in to_upstream(encoder.state_dict()).items()}
    state |= {f"text_branch.{k}": v for k, v in text.state_dict().items()}
    for name, width in (("audio", latent), ("text", 16)):
        for layer, inner in ((0, width), (2, D)):
            state[f"{name}_projection.{layer}.weight"] = torch.randn(D, inner) / inner**0.5
            state[f"{name}_projection.{layer}.bias"] = 0.1 * torch.randn(D)
    state["logit_scale_a"] = torch.tensor(2.0)
    state = {f"module.{key}": value.clone().contiguous() for key, value in state.items()}
    save_file(state, path)
    return state


@pytest.mark.parametrize("gated", [True, False], ids=["flan", "plain"])
@torch.no_grad()
def test_texts_are_the_mean_over_all_positions(gated: bool, tmp_path: Path) -> None:
    theirs = t5(gated)
    state = write(tmp_path / "epoch_15.safetensors", theirs)
    model = afclap.load(str(tmp_path / "epoch_15.safetensors"))
    assert model.text is not None
    ids = torch.randint(2, 40, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 5:] = ids[1, 5:] = 0
    mean = theirs(input_ids=ids, attention_mask=mask).last_hidden_state.mean(1)
    first, second = (
        (state[f"module.text_projection.{i}.weight"], state[f"module.text_projection.{i}.bias"])
        for i in (0, 2)
    )
    want = torch.relu(mean @ first[0].T + first[1]) @ second[0].T + second[1]
    torch.testing.assert_close(model.text.encode(ids, mask), want, atol=1e-5, rtol=0)


@torch.no_grad()
def test_sounds_go_the_way_of_laions_fused_models(tmp_path: Path) -> None:
    path = tmp_path / "epoch_15.safetensors"
    state = write(path, t5(True))
    model = afclap.load(str(path))
    spec = model.spec
    assert (spec.sample_rate_hz, spec.hop_length, spec.f_max_hz, spec.fusion) == (
        16_000, 160, 8_000.0, True,
    )  # fmt: skip
    assert spec.count_frames(spec.n_samples) == 1001
    kept = {key: value for key, value in state.items() if "text" not in key}
    save_file(kept, tmp_path / "laion.safetensors")
    theirs = laion.load(str(tmp_path / "laion.safetensors"))
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(2, 4, 1001, 64, generator=draw), torch.tensor([True, False])
    assert torch.equal(model.joint(model.encode(features)), theirs.joint(theirs.encode(features)))
    native.save(model_without_text(model), tmp_path / "own")
    again = native.load(tmp_path / "own")
    assert torch.equal(again.joint(again.encode(features)), model.joint(model.encode(features)))


def model_without_text(model: Any) -> Any:
    model.text = None  # its vocabulary is not here
    return model


def test_laion_says_where_it_belongs(tmp_path: Path) -> None:
    path = tmp_path / "epoch_15.safetensors"
    write(path, t5(True))
    with pytest.raises(ModelError, match="open it with afclap:"):
        laion.load(str(path))
