"""A healthy model passes; each kind of damage is found, and by its own name."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from one_stage import one_stage_model
from tiny_model import tiny_model
from typer.testing import CliRunner

from residual_audio.cli.app import build
from residual_audio.errors import ModelError
from residual_audio.evaluation.model_check import ModelCheck, check_model
from residual_audio.models import native, releases
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.laion import load as load_laion
from residual_audio.models.msclap import load as load_msclap
from residual_audio.models.registry import load_model
from residual_audio.models.text import NoTextError
from residual_audio.models.whisper import load as load_whisper


@pytest.fixture(scope="module")
def nano() -> ModelCheck:
    return check_model(load_model("nano"), sounds=True)


def verdicts(check: ModelCheck) -> dict[str, str]:
    return {finding.check: finding.verdict for finding in check.findings}


def test_the_bundled_model_is_healthy(nano: ModelCheck) -> None:
    assert nano.healthy, nano.table()
    assert set(verdicts(nano)) == {
        "sha256", "weights", "filters", "features", "different sounds", "batch",
        "different texts", "padding", "modality gap", "temperature", "synthetic sounds",
    }  # fmt: skip
    assert set(verdicts(nano).values()) == {"ok"}


def failed(model: torch.nn.Module) -> set[str]:
    return {name for name, verdict in verdicts(check_model(model)).items() if verdict == "fails"}


def damaged() -> torch.nn.Module:
    return load_model("nano")


def test_collapsed_text_tower() -> None:
    model = damaged()
    with torch.no_grad():
        model.text.head.bias.add_(1e3)
    assert failed(model) == {"different texts"}


def test_collapsed_audio_tower() -> None:
    model = damaged()
    with torch.no_grad():
        model.head.linear2.bias.add_(1e3)
    assert failed(model) == {"different sounds"}


def test_front_end_that_does_not_fit_the_weights() -> None:
    model = damaged()
    model.encoder.mel_norm.running_mean.add_(200.0)  # statistics of another scale
    model.front_end.filters.mul_(1.5)
    assert {"features", "filters"} <= failed(model)


def test_a_logarithm_of_another_base_is_seen() -> None:
    model = damaged()
    model.encoder.mel_norm.running_mean.mul_(math.log(10) / 10)  # as of natural logarithms
    model.encoder.mel_norm.running_var.mul_((math.log(10) / 10) ** 2)
    found = verdicts(check_model(model))
    assert found["features"] in ("look", "fails")
    assert found["filters"] == "ok"


def test_without_its_tokenizer_a_model_is_still_asked_its_temperature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(self: AudioTextModel, texts: list[str]) -> None:
        raise NoTextError("no tokenizer.json")

    monkeypatch.setattr(AudioTextModel, "embed_text", absent)
    model = one_stage_model("m2d")
    model.logit_scale = 1e5
    found = verdicts(check_model(model))
    assert (found["texts"], found["temperature"]) == ("look", "fails")


def test_temperature_and_zeros() -> None:
    model = damaged()
    model.logit_scale = 1 / 0.07
    with torch.no_grad():
        model.encoder.stages[0][0].proj.weight.zero_()
    found = verdicts(check_model(model))
    assert (found["temperature"], found["weights"]) == ("look", "fails")


def test_audio_only_and_sums() -> None:
    model = tiny_model(text=False)
    found = verdicts(check_model(model))
    assert found["texts"] == "ok"
    assert "padding" not in found
    model.family, model.name = "whisper", "whisper:models/tiny.en.pt"
    assert verdicts(check_model(model))["sha256"] == "fails"
    model.sha256 = next(iter(releases.SHA256))
    assert verdicts(check_model(model))["sha256"] == "ok"


def test_command_ends_with_the_verdict(tmp_path: Path) -> None:
    found = CliRunner().invoke(build(), ["models", "check", "nano", "-q"])
    assert found.exit_code == 0, found.output
    assert "nano is healthy" in found.output
    model = one_stage_model("whisper")
    model.logit_scale = 1e5
    native.save(model, tmp_path / "hot")
    found = CliRunner().invoke(build(), ["models", "check", str(tmp_path / "hot"), "--json"])
    assert found.exit_code == 1
    assert '"healthy": false' in found.output


def test_named_releases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(releases, "hub_reachable", lambda: False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for load, name, repository in (
        (load_laion, "630k-audioset-best", "lukewys/laion_clap 630k-audioset-best.pt"),
        (load_msclap, "2023", "microsoft/msclap CLAP_weights_2023.pth"),
    ):
        with pytest.raises(ModelError, match=f"hf download {repository}"):
            load(name)
    with pytest.raises(ModelError, match=r"neither a file nor a release .*630k-best"):
        load_laion("unknown")
    with pytest.raises(ModelError, match=r"no file 'unknown\.pt'"):
        load_laion("unknown.pt")
    with pytest.raises(ModelError, match="hf download lukewys/laion_clap 630k-best"):
        load_laion("630k-best.pt")
    with pytest.raises(ModelError, match=r"Cnn14.*msclap:2023"):
        load_msclap("2022")
    asked = []

    def download(repository: str, file: str, local_files_only: bool) -> str:
        asked.append((repository, file, local_files_only))
        return str(tmp_path / "found.pt")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert releases.named_file("laion", "630k-best") == str(tmp_path / "found.pt")
    assert asked == [("lukewys/laion_clap", "630k-best.pt", True)]


def test_whisper_by_the_name_that_openai_uses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(
        ModelError, match=r"tiny\.en\.pt of OpenAI.*whisper:openai/whisper-tiny\.en"
    ):
        load_whisper("tiny.en")
    (tmp_path / "whisper").mkdir()
    file = tmp_path / "whisper" / "tiny.en.pt"
    file.write_bytes(b"cut")
    assert releases.openai_file("tiny.en") == str(file)
    assert releases.openai_file("elsewhere/tiny.en") == "elsewhere/tiny.en"
