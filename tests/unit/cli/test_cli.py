"""The command line: quick to answer, clear when wrong, the same exit codes everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from huggingface_hub import ModelCard
from safetensors import safe_open
from typer.testing import CliRunner

from residual_audio.cli.app import COMMANDS, build
from residual_audio.models.registry import NANO

runner = CliRunner()
needs_nano = pytest.mark.skipif(
    not (NANO / "config.json").is_file(), reason="this build does not carry the bundled model"
)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "noise.wav"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, 48_000), 48_000)
    return path


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from residual_audio.cli.app import build\n"
        "import typer\n"
        "typer.main.get_command(build())\n"
        "heavy = {'torch', 'transformers', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'pyarrow',"
        " 'pandas', 'umap', 'ray', 'plotly', 'optuna'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(command: str) -> None:
    found = runner.invoke(build(), [command, "--help"])
    assert found.exit_code == 0, found.output
    assert "Usage" in found.output


def test_main_prints_one_line_for_an_error_and_exits_1() -> None:
    call = [sys.executable, "-m", "residual_audio", "models", "show", "laion:/nowhere.pt"]
    out = subprocess.run(call, capture_output=True, text=True, check=False)
    assert out.returncode == 1
    assert out.stderr.startswith("error: no file '/nowhere.pt'")
    assert "Traceback" not in out.stderr


def test_usage_errors_exit_2() -> None:
    assert runner.invoke(build(), ["classify"]).exit_code == 2
    assert runner.invoke(build(), ["no-such-command"]).exit_code == 2


def test_models_and_doctor_speak_json() -> None:
    models = json.loads(runner.invoke(build(), ["models", "--json"]).stdout)
    assert {"nano", "<folder>"} <= {row["name"] for row in models}
    doctor = json.loads(runner.invoke(build(), ["doctor", "--json"]).stdout)
    assert doctor["versions"]["torch"]
    assert doctor["problems"] == {}
    shown = runner.invoke(build(), ["models", "show", "htsat-tiny-random", "--json"])
    facts = json.loads(shown.stdout)
    assert facts["heads"] == 184
    assert len(facts["sha256"]) == 64


def test_embed_writes_vectors_and_skips_what_is_not_audio(tmp_path: Path, clip: Path) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("not audio")
    out = tmp_path / "out.safetensors"
    call = [
        "embed",
        str(clip),
        str(bad),
        "--model",
        "htsat-tiny-random",
        "--out",
        str(out),
        "--json",
    ]
    found = runner.invoke(build(), call)
    assert found.exit_code == 3, found.output
    assert list(json.loads(found.stdout)["skipped"]) == [str(bad)]
    with safe_open(out, "np") as file:
        assert file.get_tensor("embeddings").shape == (1, 512)
        assert json.loads(file.metadata()["files"]) == [str(clip)]
        assert json.loads(file.metadata()["provenance"])["model"]["sha256"]


def test_convert_writes_a_folder_that_loads(tmp_path: Path, clip: Path) -> None:
    out = tmp_path / "model"
    found = runner.invoke(build(), ["models", "convert", "htsat-tiny-random", "--out", str(out)])
    assert found.exit_code == 0, found.output
    assert {path.name for path in out.iterdir()} == {
        "README.md", "SHA256SUMS", "config.json", "model.safetensors", "residual_audio.json",
    }  # fmt: skip
    card = ModelCard.load(out / "README.md")
    assert card.data.base_model == "htsat-tiny-random"
    assert card.data.library_name == "residual-audio"
    assert card.data.pipeline_tag == "feature-extraction"
    shown = runner.invoke(build(), ["models", "show", str(out), "--json"])
    assert json.loads(shown.stdout)["heads"] == 184


@needs_nano
def test_classify_scores_free_text(clip: Path) -> None:
    call = ["classify", str(clip), "--labels", "white noise, a dog barking,a flute", "--json"]
    answer = json.loads(runner.invoke(build(), call).stdout)[0]
    scores = [row["score"] for row in answer["labels"]]
    assert sum(scores) == pytest.approx(1.0)
    assert scores == sorted(scores, reverse=True)
    assert {row["label"] for row in answer["labels"]} == {"white noise", "a dog barking", "a flute"}


def test_bench_encode_measures_both_sides() -> None:
    call = ["bench", "encode", "--clips", "2", "--batch-size", "2", "--repeats", "1", "--json"]
    found = json.loads(runner.invoke(build(), call).stdout)
    assert found["max_abs_diff"] < 1e-5
    assert found["ratio"] == pytest.approx(found["hf_s_per_clip"] / found["ours_s_per_clip"])
    assert min(found[k] for k in ("forward_ratio", "front_end_ratio", "kernels_ratio")) > 0
