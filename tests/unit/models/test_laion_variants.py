"""What LAION's code can train beyond its releases: other text models, other frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from residual_audio.audio import specs
from residual_audio.audio.frontend import LogMel
from residual_audio.errors import ModelError
from residual_audio.models import laion
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.swin_names import to_upstream

D = 12
SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 20}  # fmt: skip


def text_model(kind: str) -> BertModel | RobertaModel:
    torch.manual_seed(3)
    if kind == "bert":
        return BertModel(BertConfig(**SIZES, max_position_embeddings=24)).eval()
    config = RobertaConfig(
        **SIZES, max_position_embeddings=26, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5
    )
    return RobertaModel(config).eval()


def write(path: Path, text: torch.nn.Module, n_fft: int = 1024) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    encoder = HTSAT(HTSATConfig(embed_dim=4, depths=(1, 1, 1, 1), n_heads=(1, 1, 2, 4)))
    state = {f"audio_branch.{k}": v for k, v in to_upstream(encoder.state_dict()).items()}
    bank = LogMel(replace(specs.LAION, n_fft=n_fft)).filters
    state["audio_branch.logmel_extractor.melW"] = bank
    state |= {f"text_branch.{k}": v for k, v in text.state_dict().items()}
    for name, width in (("audio", encoder.config.latent), ("text", 16)):
        for layer, inner in ((0, width), (2, D)):
            state[f"{name}_projection.{layer}.weight"] = torch.randn(D, inner) / inner**0.5
            state[f"{name}_projection.{layer}.bias"] = 0.1 * torch.randn(D)
    state["logit_scale_a"] = torch.tensor(2.0)
    save_file({key: value.clone().contiguous() for key, value in state.items()}, path)
    return state


@pytest.mark.parametrize(("kind", "pad"), [("roberta", 1), ("bert", 0)])
@torch.no_grad()
def test_text_is_read_as_what_it_is(tmp_path: Path, kind: str, pad: int) -> None:
    """Their tensors have the same names; padding, tokens and the norm's ε do not."""
    theirs = text_model(kind)
    state = write(tmp_path / "m.safetensors", theirs)
    model = laion.load(str(tmp_path / "m.safetensors"), text_heads=2)
    assert model.text is not None
    ids = torch.tensor([[3, 9, 8, 2], [3, 7, 2, pad]])
    mask = (ids != pad).long()
    pooled = theirs(input_ids=ids, attention_mask=mask).pooler_output
    first, second = (
        (state[f"text_projection.{i}.weight"], state[f"text_projection.{i}.bias"]) for i in (0, 2)
    )
    want = torch.relu(pooled @ first[0].T + first[1]) @ second[0].T + second[1]
    torch.testing.assert_close(model.text.encode(ids, mask), want, atol=1e-6, rtol=0)
    assert model.text.tokenizer_spec.source.startswith(kind)


def test_frames_are_as_long_as_the_filters_say(tmp_path: Path) -> None:
    write(tmp_path / "m.safetensors", text_model("roberta"), n_fft=1536)
    model = laion.load(str(tmp_path / "m.safetensors"), text_heads=2)
    assert (model.spec.n_fft, model.spec.hop_length) == (1536, 480)
    wave = 0.1 * torch.randn(1, 48_000, generator=torch.Generator().manual_seed(0))
    frames = torch.stft(
        wave, 1536, 480, window=torch.hann_window(1536), return_complex=True, pad_mode="reflect"
    )
    power = frames.abs().square().transpose(1, 2) @ LogMel(model.spec).filters
    want = 10 * torch.log10(power.clamp(min=1e-10))
    torch.testing.assert_close(model.features(wave), want, atol=0.02, rtol=0)
    with pytest.raises(ModelError, match="n_fft 1536"):
        laion.save(model, tmp_path / "again.pt")
