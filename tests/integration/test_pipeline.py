"""The main job end to end with a small random model: every step runs, resumes and is skipped."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from residual_audio.audio import specs
from residual_audio.cli.app import build
from residual_audio.models import native
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import MLP
from residual_audio.models.text_small import SmallText, SmallTextConfig, train_bpe

runner = CliRunner()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    words = ["a dog barks", "rain on a roof", "this is a sound of a bell", "a siren and a knock"]
    tokenizer = train_bpe(words, 300)
    encoder = HTSAT(HTSATConfig(embed_dim=8, window=4, spec_size=128))
    text = SmallText(
        SmallTextConfig(
            vocabulary=tokenizer.get_vocab_size(), width=16, depth=1, n_heads=2, d_out=24
        ),
        tokenizer,
    )
    model = AudioTextModel(
        name="small",
        family="native",
        front_end=build_front_end(specs.NANO),
        encoder=encoder,
        head=MLP(64, 32, 24),
        text=text,
        logit_scale=20.0,
        sha256="0" * 64,
    )
    folder = tmp_path_factory.mktemp("models") / "small"
    native.save(model, folder)
    return folder


def call(model_folder: Path, out: Path, *more: str) -> list[str]:
    options = ["--data-option", "n_clips=82", "--exact", "8", "--folds", "2", *more]
    return [
        "run",
        "--model",
        str(model_folder),
        "--dataset",
        "synthetic",
        "--out",
        str(out),
        *options,
    ]


def test_run_ends_in_a_page_and_is_up_to_date_afterwards(
    model_folder: Path, tmp_path: Path
) -> None:
    first = runner.invoke(build(), call(model_folder, tmp_path))
    assert first.exit_code == 0, first.output
    assert "left out" not in first.output
    page = (tmp_path / "report.html").read_text()
    for part in ("What each head carries", "zero-shot", "data:image/png", "data:audio/ogg"):
        assert part in page
    with (tmp_path / "tables" / "heads.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 184
    with (tmp_path / "tables" / "adapted.csv").open() as file:
        methods = {row["method"] for row in csv.DictReader(file)}
    assert {"zero-shot", "ResiDual", "linear probe, latent"} <= methods
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["n_clips"], record["model"]) == (82, f"…/{model_folder.name}")
    assert str(model_folder) not in page
    before = (tmp_path / "tables" / "heads.csv").stat().st_mtime_ns

    second = runner.invoke(build(), call(model_folder, tmp_path))
    assert second.exit_code == 0, second.output
    assert second.output.count("up to date") == 9
    assert (tmp_path / "tables" / "heads.csv").stat().st_mtime_ns == before

    (tmp_path / "report.html").unlink()
    third = runner.invoke(build(), ["report", str(tmp_path), "--no-figures"])
    assert third.exit_code == 0, third.output
    assert (tmp_path / "report.html").is_file()


def test_another_data_set_in_the_same_folder_is_refused(model_folder: Path, tmp_path: Path) -> None:
    small = call(model_folder, tmp_path, "--limit", "41")
    assert runner.invoke(build(), small).exit_code == 0
    other = runner.invoke(build(), call(model_folder, tmp_path))
    assert other.exit_code == 1
    assert "overwrite" in str(other.exception)


def test_unlabelled_sounds_leave_out_what_needs_labels(model_folder: Path, tmp_path: Path) -> None:
    sounds = tmp_path / "sounds"
    made = ["datasets", "make", "synthetic", "--out", str(sounds), "--n", "12"]
    assert runner.invoke(build(), made).exit_code == 0
    manifest = sounds / "manifest.csv"
    rows = list(csv.DictReader(manifest.open()))
    bare = tmp_path / "bare.csv"
    bare.write_text("path\n" + "\n".join(str(sounds / row["path"]) for row in rows) + "\n")
    options = ["--dataset", "manifest", "--root", str(bare), "--data-option", "allow_outside=true"]
    out = tmp_path / "run"
    found = runner.invoke(
        build(), ["run", "--model", str(model_folder), *options, "--out", str(out), "--exact", "0"]
    )
    assert found.exit_code == 0, found.output
    assert "evaluate  left out" in found.output
    assert (out / "report.html").is_file()
