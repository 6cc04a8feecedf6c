"""Whisper's encoder pooled over positions that hear something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.audio import specs
from residual_audio.cli.app import build
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError, ModelError
from residual_audio.models import native
from residual_audio.models.encoder import States
from residual_audio.models.frontends import build_front_end
from residual_audio.models.joint import Identity
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.store import open_store
from residual_audio.surface.model import Model, load_model

RATE = 8000
SPEC = replace(specs.WHISPER, sample_rate_hz=RATE, n_samples=4 * RATE, n_mels=16, f_max_hz=4000.0)


def whisper(folder: Path, halve: bool = False) -> str:
    """A folder with a window of four seconds."""
    torch.manual_seed(0)
    config = ViTConfig(
        width=16, depth=2, n_heads=4, hidden=24, n_mels=16, n_frames=200, norm_eps=1e-5,
        stem="conv", patch=(1, 1), stride=(1, 1), halve=halve,
    )  # fmt: skip
    encoder = ViT(config)
    for name, parameter in encoder.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(parameter, 0.0, 0.3)
    model = Model(
        name="small", family="whisper", front_end=build_front_end(SPEC), encoder=encoder,
        head=Identity(config.latent), text=None, logit_scale=1.0, sha256="0" * 64,
    )  # fmt: skip
    native.save(model, folder)
    return str(folder)


@pytest.fixture(params=[False, True], ids=["whole", "halved"])
def names(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    name = whisper(tmp_path / "model", request.param)
    return name, f"{name}?pool=sounding"


def noise(seconds: float, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return (0.1 * draw.standard_normal(int(seconds * RATE))).astype(np.float32)


class Seen:
    points = frozenset({"heard", "end"})

    def __call__(self, point: str, where: object, value: torch.Tensor) -> None:
        setattr(self, point, value)


@torch.no_grad()
def test_the_latent_is_the_mean_over_what_is_heard(names: tuple[str, str]) -> None:
    plain, sounding = (load_model(name, "cpu") for name in names)
    waves = torch.from_numpy(np.concatenate([plain.windows(noise(s)) for s in (0.5, 4.0)]))
    features = plain.features(waves)
    seen = Seen()
    found = sounding.encode(features, tap=seen)
    heard = seen.heard
    assert abs(int(heard[0].sum()) - 13) <= 2  # half a second of four, 100 positions
    assert bool(heard[1].all())
    normed = sounding.encoder.norm(
        seen.end.unflatten(1, (-1, 2)).mean(2) if sounding.encoder.config.halve else seen.end
    )
    if sounding.encoder.config.halve:
        heard = heard[:, ::2]
    for clip in range(2):
        want = normed[clip, heard[clip]].mean(0)
        torch.testing.assert_close(found.latent[clip], want, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.latent[1], plain.encode(features).latent[1])
    assert not torch.allclose(found.latent[0], plain.encode(features).latent[0], atol=1e-3)
    silence = plain.features(torch.zeros(1, SPEC.n_samples))
    torch.testing.assert_close(sounding.encode(silence).latent, plain.encode(silence).latent)


@torch.no_grad()
def test_states_and_contributions_know_what_was_heard(names: tuple[str, str]) -> None:
    model = load_model(names[1], "cpu")
    waves = torch.from_numpy(np.concatenate([model.windows(noise(s)) for s in (0.5, 1.2)]))
    keep = States(model.encoder.sites, {0, 1})
    latent = model.encode(model.features(waves), tap=keep).latent
    for block in (0, 1):
        again = model.encode(None, start=keep.states[block]).latent
        torch.testing.assert_close(again, latent)
        alone = model.encode(None, start=keep.states[block].take(slice(1, 2))).latent
        torch.testing.assert_close(alone, latent[1:])
    with pytest.raises(InputError, match="give it features"):
        model.encode(None, start=replace(keep.states[0], heard=None))
    cache = model.run([noise(0.5), noise(1.2)], keep=["contributions"], sample_rate=RATE)
    np.testing.assert_allclose(cache.contributions().total(), cache.latent, atol=1e-4)


def test_a_store_of_it_says_so_and_leaves_padding_out(
    names: tuple[str, str], tmp_path: Path
) -> None:
    sounds = ra.load_dataset("synthetic", n_clips=6, duration_s=1.0)
    plain = ra.extract(names[0], sounds, tmp_path / "plain", capture=("heads", "moments", "direct"))
    asked = ["--model", names[0], "--pool", "sounding", "--data-option", "n_clips=6"]
    asked += ["--data-option", "duration_s=1.0", "--capture", "heads,moments,direct"]
    out = tmp_path / "sounding"
    said = CliRunner().invoke(
        build(), ["extract", "--dataset", "synthetic", *asked, "--out", str(out)]
    )
    assert said.exit_code == 0, said.output
    store = open_store(out)
    assert store.asked["model"]["pool"] == "sounding"
    assert "pool" not in plain.store.asked["model"]
    assert store.model_info.sha256 != plain.store.model_info.sha256
    assert set(plain.store.remarks.values()) == {"more than half of its window is padding"}
    assert not store.remarks
    heard, whole = (found.moments("s0.b0.attention").n for found in (store, plain.store))
    assert heard < 0.5 * whole
    direct = Contributions(store)
    np.testing.assert_allclose(direct.total(), store.latent(), atol=1e-4)


def test_padding_is_told_in_one_line(names: tuple[str, str], tmp_path: Path) -> None:
    asked = ["--data-option", "n_clips=3", "--data-option", "duration_s=1.0"]
    said = CliRunner().invoke(
        build(), ["extract", "-m", names[0], "-d", "synthetic", *asked, "-o", str(tmp_path / "run")]
    )
    assert "3 clips fill less than half" in said.output
    assert "--pool sounding" in said.output


def test_other_encoders_refuse_it() -> None:
    with pytest.raises(ModelError, match="Whisper's encoders"):
        load_model("nano?pool=sounding", "cpu")
