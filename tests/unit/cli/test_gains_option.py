"""`--gains` on every command that embeds: the model with gains of either path at work."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from one_stage import save_one_stage
from safetensors.numpy import load_file
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.cli.app import build
from residual_audio.reweight.gain_files import find_gains

SMALL = ["-d", "synthetic", "--data-option", "n_clips=12", "--no-cache", "--json"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_one_stage(tmp_path_factory.mktemp("model") / "whisper", "whisper"))


@pytest.fixture(scope="module", params=["network", "direct"])
def gains(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    d = 8 if request.param == "network" else 32
    spectrum = ra.Spectrum(np.zeros(d), np.eye(d), np.ones(d), 100)
    units = [f"s0.b2.h{i}" for i in range(4)]
    about = {"dataset": {"name": "synthetic"}}
    found = ra.Gains(
        {unit: np.full(d, 3.0) for unit in units},
        dict.fromkeys(units, spectrum),
        path=request.param,
        fitted_on=about,
    )
    run = tmp_path_factory.mktemp("run")
    ra.save_gains(found, run / "gains" / "mine")
    return run


def call(*arguments: object) -> str:
    done = CliRunner().invoke(build(), [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_embed_and_classify(model: str, gains: Path, tmp_path: Path) -> None:
    wave = np.random.default_rng(0).normal(size=32_000) / 10
    soundfile.write(tmp_path / "a.wav", wave, 32_000, subtype="FLOAT")
    files = [tmp_path / "a.wav"]
    out = tmp_path / "vectors.safetensors"
    call("embed", files[0], "-o", out, "-m", model, "--gains", gains, "--json")
    loaded = ra.load_model(model)
    given = ra.load_gains(find_gains(gains))
    want = loaded.embed_audio(files, edit=given)
    np.testing.assert_allclose(load_file(out)["embeddings"], want, atol=1e-6)
    assert np.abs(want - loaded.embed_audio(files)).max() > 1e-4
    scores = [
        json.loads(
            call("classify", files[0], "--labels", "a dog,rain", "-m", model, "--json", *more)
        )
        for more in ((), ("--gains", gains))
    ]
    assert scores[0] != scores[1]


def test_evaluate_compa_and_probe(model: str, gains: Path, tmp_path: Path) -> None:
    tail = ["-m", model, "--gains", gains, "-o", tmp_path]
    found = json.loads(call("evaluate", *SMALL, *tail))["results"][0]
    assert found["task"] == "adapted"
    assert "+ gains" in found["model"]
    assert "no score on held-out clips" in found["details"]["gains"]["seen"]
    pairs = call("compa", "--items", "4", "--kind", "order", "--no-cache", "--json", *tail)
    assert json.loads(pairs)["results"][0]["task"] == "adapted-compa"
    shape = json.loads(call("probe", "--halves", "2", *SMALL, *tail))["results"][0]
    assert "+ gains" in shape["model"]


def test_which_gains_is_never_guessed(gains: Path, tmp_path: Path) -> None:
    given = ra.load_gains(find_gains(gains))
    for name in ("one", "two"):
        ra.save_gains(given, tmp_path / "gains" / name)
    with pytest.raises(ra.ResidualAudioError, match="one of one, two"):
        find_gains(tmp_path)
    with pytest.raises(ra.ResidualAudioError, match="no gains in"):
        find_gains(Path(__file__).parent)
