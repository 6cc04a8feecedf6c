"""PE-Audio against transformers' own code with random weights, in the same process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from residual_audio.errors import ModelError
from residual_audio.models import native, pe_audio
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.codec import whole_frames
from residual_audio.models.proof import prove
from residual_audio.models.registry import load_model
from residual_audio.types import Site

RATE = 1600
TEXT = {
    "model_type": "modernbert", "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 64,
    "local_attention": 8, "pad_token_id": 0, "cls_token_id": 1, "bos_token_id": 1,
    "sep_token_id": 2, "eos_token_id": 2,
}  # fmt: skip
CODEC = {
    "model_type": "dac", "encoder_hidden_size": 4, "downsampling_ratios": [2, 3, 4],
    "codebook_dim": 12, "hidden_size": 20,
}  # fmt: skip
AUDIO = {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "head_dim": 8, "dac_config": CODEC,
}  # fmt: skip
VARIANTS = {
    "plain": {},
    "heads wider than the stream": {"head_dim": 10},
    "shared keys": {"num_key_value_heads": 2},
    "biases": {"attention_bias": True},
    "other positions": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
}


def upstream(audio: dict[str, Any]) -> Any:
    import transformers

    torch.manual_seed(3)
    model = transformers.PeAudioModel(
        transformers.PeAudioConfig(text_config=TEXT, audio_config={**AUDIO, **audio})
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim == 1 or parameter[0].numel() == 1:
                parameter.add_(0.2 * noise)
            else:
                parameter.copy_(0.8 * noise / parameter[0].numel() ** 0.5)
        model.text_audio_logit_scale.fill_(3.0)
    return model


def folder_of(model: Any, folder: Path) -> Path:
    from transformers import PeAudioFeatureExtractor

    model.save_pretrained(folder)
    PeAudioFeatureExtractor(sampling_rate=RATE, hop_length=24).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, AudioTextModel]:
    theirs = upstream(request.param)
    return theirs, pe_audio.load(str(folder_of(theirs, tmp_path_factory.mktemp("pe"))))


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


class Streams:
    points = frozenset({"stream", "raw"})

    def __init__(self) -> None:
        self.stream: list[Tensor] = []
        self.raw: list[Tensor] = []

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        getattr(self, point).append(value)


@torch.no_grad()
def test_every_stream_head_and_embedding(pair: tuple[Any, AudioTextModel]) -> None:
    theirs, ours = pair
    waves = 0.1 * torch.randn(2, 1, 24 * 31, generator=torch.Generator().manual_seed(0))
    entering: list[Tensor] = []
    heads: list[Tensor] = []
    for layer in theirs.audio_encoder.layers:
        layer.register_forward_pre_hook(lambda _, given: entering.append(given[0]))
        layer.self_attn.o_proj.register_forward_pre_hook(lambda _, given: heads.append(given[0]))
    found = theirs.audio_encoder(input_values=waves)
    tap = Streams()
    encoded = ours.encode(ours.features(waves[:, 0]), tap=tap)
    for mine, want in zip(tap.stream, entering, strict=True):
        close(mine, want)
    for mine, want in zip(tap.raw, heads, strict=True):
        close(mine.flatten(-2), want)
    close(encoded.latent, found.pooler_output)
    close(encoded.tokens, found.last_hidden_state)
    close(ours.joint(encoded), theirs.get_audio_embeds(waves))


@torch.no_grad()
def test_waveforms_of_any_length_and_texts(pair: tuple[Any, AudioTextModel]) -> None:
    from transformers import PeAudioFeatureExtractor

    theirs, ours = pair
    extract = PeAudioFeatureExtractor(sampling_rate=RATE, hop_length=24)
    for n in (24 * 9, 517, 700):
        wave = 0.1 * np.random.default_rng(n).standard_normal(n).astype(np.float32)
        given = extract(wave, sampling_rate=RATE, return_tensors="pt")
        heard = ours.embed_windows(torch.from_numpy(ours.windows(wave)))
        close(heard, theirs.get_audio_embeds(**given))
    ids = torch.randint(3, 60, (2, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 13:] = 0
    waves = 0.1 * torch.randn(2, 1, 240, generator=torch.Generator().manual_seed(1))
    want = theirs(input_ids=ids, attention_mask=mask, input_values=waves).text_audio_embeds
    assert ours.text is not None
    close(ours.text.encode(ids, mask), want)
    assert ours.logit_scale == 3.0


def test_it_proves_itself_and_our_layout_keeps_it(
    pair: tuple[Any, AudioTextModel], tmp_path: Path
) -> None:
    _, ours = pair
    ours.text, kept = None, ours.text  # its tokenizer is not here
    try:
        prove(ours)
        native.save(ours, tmp_path / "model")
        again = load_model(str(tmp_path / "model"), "cpu")
    finally:
        ours.text = kept
    waves = 0.1 * torch.randn(1, 500)
    with torch.inference_mode():
        assert torch.equal(again.embed_windows(waves), ours.embed_windows(waves))
    assert again.spec == ours.spec


def test_the_audio_side_of_an_audio_video_model(tmp_path: Path) -> None:
    """PE-AV holds PE-Audio below `audio_model`, and the text side that its parts share."""
    theirs = upstream({})
    folder = folder_of(theirs, tmp_path)
    state = load_file(folder / "model.safetensors")
    moved = {
        key if key.startswith("text_model.") else f"audio_model.{key}": value
        for key, value in state.items()
    }
    moved["video_model.video_head.proj.weight"] = torch.zeros(2, 2)
    save_file(moved, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "pe_audio_video", "architectures": ["PeAudioVideoModel"]}
    config["audio_video_config"] = {"audio_config": config.pop("audio_config")}
    (folder / "config.json").write_text(json.dumps(config))
    ours = pe_audio.load(str(folder))
    waves = 0.1 * torch.randn(1, 1, 240)
    with torch.no_grad():
        close(ours.embed_windows(waves[:, 0]), theirs.get_audio_embeds(waves))
    assert ours.text is not None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "clap"}, "not PE-Audio"),
        ({"architectures": ["PeAudioFrameLevelModel"]}, "every frame by itself"),
        ({"audio_config": {"hidden_act": "relu"}}, "activation 'relu'"),
        ({"audio_config": {**AUDIO, "num_attention_heads": 3}}, "does not hold|for 3 heads"),
        ({"text_config": {"model_type": "bert"}}, "only modernbert"),
    ],
)
def test_what_it_is_not_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    folder = folder_of(upstream({}), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ModelError, match=said):
        load_model(f"pe-audio:{folder}", "cpu")


@pytest.mark.parametrize("n", [1, 2, 5, 24, 25, 47])
def test_ends_are_mirrored_as_numpy_does(n: int) -> None:
    wave = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    want = np.pad(wave, (0, -n % 24), "reflect")
    assert np.array_equal(whole_frames(torch.from_numpy(wave)[None], 24)[0].numpy(), want)
