"""Every line in the table of doors runs, against the tool that it names."""

from __future__ import annotations

import re
from pathlib import Path

import datasets
import mteb
import numpy as np
import onnxruntime
import pytest
import soundfile
import torch
from peft import PeftModel
from small_clap import save_small_clap
from transformers import ClapModel

import residual_audio as ra
import residual_audio.mteb as doors

PAGE = Path(__file__).resolve().parents[3] / "docs" / "ecosystem.md"
LINES = re.findall(r"^\|.*\| `(.+)` \|$", PAGE.read_text(), re.MULTILINE)


class SimpleTask(mteb.abstasks.zeroshot_classification.AbsTaskZeroShotClassification):
    """Three sounds and two labels, so that the text side can be any."""

    metadata = mteb.TaskMetadata(
        name="Doors",
        description="Three sounds.",
        dataset={"path": "local/none", "revision": "1"},
        type="AudioZeroshotClassification",
        category="a2t",
        modalities=["audio", "text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="accuracy",
    )
    input_column_name = "audio"

    def load_data(self, **about: object) -> None:
        rng = np.random.default_rng(0)
        rows = [{"array": rng.normal(0, 0.1, 48_000), "sampling_rate": 48_000} for _ in range(3)]
        table = datasets.Dataset.from_dict({"audio": rows, "label": [0, 1, 0]})
        self.dataset = datasets.DatasetDict({"test": table})
        self.data_loaded = True

    def get_candidate_labels(self) -> list[str]:
        return ["one", "other"]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("doors")
    save_small_clap(folder / "clap")
    made = ra.load_dataset("synthetic", n_clips=246).select(classes=["rain", "wind"])
    files = []
    for i, clip in enumerate(made.clips):
        soundfile.write(folder / f"{i}.wav", made.read(clip, 32_000, 1.0), 32_000)
        files.append(str(folder / f"{i}.wav"))
    spectrum = ra.Spectrum(np.zeros(2), np.eye(2), np.ones(2), 100)
    return {
        "folder": folder,
        "ra": ra,
        "clap": ra.load_model(f"hf:{folder / 'clap'}", "cpu"),
        "model": ra.load_model("nano", "cpu"),
        "gains": ra.Gains({"s2.b5.h0": np.array([0.5, 2.0])}, {"s2.b5.h0": spectrum}),
        "files": files,
        "labels": [str(clip.label) for clip in made.clips],
        "ClapModel": ClapModel,
        "PeftModel": PeftModel,
        "onnxruntime": onnxruntime,
        "mteb": mteb,
        "doors": doors,
        "task": SimpleTask(),
        "cache": mteb.ResultCache(cache_path=folder / "mteb"),
    }


def test_every_line_runs(given: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    folder: Path = given["folder"]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(folder / "kept"))
    # the small model has no vocabulary: any texts will do
    plain = ra.Model.embed_text

    def embed_text(self: ra.Model, texts: list[str], **about: object) -> np.ndarray:
        small = self.joint_dim == 24
        vectors = np.eye(24, dtype=np.float32)[: len(texts)]
        return vectors if small else plain(self, texts, **about)

    monkeypatch.setattr(ra.Model, "embed_text", embed_text)
    assert len(LINES) == 14
    for line in LINES:
        exec(compile(line, str(PAGE), "exec"), given)  # noqa: S102, our own page
    cards = [*folder.rglob("README.md"), folder / "adapted.README.md"]
    assert all("base_model" in path.read_text() for path in cards)
    features = given["clap"].features(0.1 * torch.randn(1, given["clap"].spec.n_samples))
    with torch.no_grad():
        adapted = given["clap"].with_edit(given["gains"])
        want = torch.nn.functional.normalize(adapted.joint(adapted.encode(features)))
        for theirs in (given["theirs"].eval(), given["tuned"].eval()):
            found = theirs.get_audio_features(input_features=features[:, None])
            found = torch.nn.functional.normalize(getattr(found, "pooler_output", found))
            np.testing.assert_allclose(found.numpy(), want.numpy(), atol=1e-5)
    assert next(given["batches"]).shape[0] == 64
    assert given["vectors"].shape == (12, 256)
    assert list(folder.rglob("Doors.json"))
    assert given["board"].model.spec.quantise
    assert given["found"].after.n == 12
    assert [output.name for output in given["session"].get_outputs()] == ["embedding"]
