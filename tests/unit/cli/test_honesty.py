"""What a reader of numbers must know is said: training data, odd clips, bounds, what cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from evaluation_fakes import FakeModel, labelled
from typer.testing import CliRunner

from residual_audio.audio.oddities import oddity
from residual_audio.cli.app import build
from residual_audio.cli.run import chosen_rows
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.data.remembered import NAME, RunSource, recall_source, remember_source
from residual_audio.embeddings import of_dataset
from residual_audio.embeddings.of_dataset import embed_clips
from residual_audio.errors import InputError
from residual_audio.geometry.cells import Cells
from residual_audio.geometry.clouds import make_clouds
from residual_audio.geometry.correlates import correlate
from residual_audio.geometry.probes import bounds, probe
from residual_audio.metrics.uncertainty import mean_interval
from residual_audio.models.registry import load_model
from residual_audio.models.training_data import TrainingData, heard_before, read_training_data
from residual_audio.progress import Progress
from residual_audio.training.recipe import load_recipe
from residual_audio.training.training_clips import trained_on
from residual_audio.types import Clip

runner = CliRunner()


# --- training data


def esc50(folds: tuple[int, ...], name: str = "esc50") -> Dataset:
    clips = tuple(
        Clip(id=f"{fold}-{i}-A-7.wav", label="dog", fold=fold if name == "esc50" else None)
        for fold in folds
        for i in range(3)
    )
    made = load_dataset("synthetic", n_clips=41)
    numbers = {fold: str(fold) for fold in folds}
    return replace(made, name=name, clips=clips, recipe="", folds=numbers)


def test_the_bundled_model_knows_what_it_heard() -> None:
    parts = load_model("nano", "cpu").trained_on
    assert parts is not None
    assert parts == trained_on(load_recipe("nano", []).audio)
    seen = heard_before(parts, esc50((3, 4)))
    assert (seen["n"], seen["of"]) == (3, 6)
    assert "trained on 3 of these 6 clips (esc50 folds 1, 2, 3)" in seen["note"]
    others = heard_before(parts, esc50((4,)))
    assert others["n"] == 0
    assert "trained on other clips of the same kind (esc50 folds 1, 2, 3)" in others["note"]
    # the same files as a folder of one's own are known by their names
    assert heard_before(parts, esc50((1, 4), "folder"))["n"] == 3
    assert heard_before(parts, load_dataset("synthetic", n_clips=82, seed=101))["n"] == 82
    assert heard_before(parts, load_dataset("synthetic", n_clips=82, seed=1010))["n"] == 0
    fresh = heard_before(parts, load_dataset("synthetic", n_clips=82, seed=90_000))
    assert fresh["n"] == 0
    assert "other clips of the same kind (synthetic (kind=classes seed=101" in fresh["note"]


def test_of_other_models_it_is_not_known() -> None:
    seen = heard_before(None, esc50((1,)))
    assert (seen["n"], seen["note"]) == (None, "")
    assert read_training_data(None) is None
    shown = runner.invoke(build(), ["models", "show", "htsat-tiny-random"])
    assert "nothing: random weights" in shown.stdout
    assert "esc50 folds 1, 2, 3" in runner.invoke(build(), ["models", "show", "nano"]).stdout


def test_an_evaluation_says_so_in_terminal_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = labelled()
    model.trained_on = (TrainingData(data.name),)  # type: ignore[attr-defined]
    import_module("residual_audio.surface.probed")  # has the real ones before they are replaced
    monkeypatch.setattr("residual_audio.models.registry.load_model", lambda *_: model)
    monkeypatch.setattr("residual_audio.surface.model.Model.of", lambda model: model)
    monkeypatch.setattr("residual_audio.data.registry.load_dataset", lambda *_, **__: data)
    call = ["evaluate", "-d", "synthetic", "--no-cache", "--out", str(tmp_path)]
    found = runner.invoke(build(), call)
    assert f"was trained on {len(data)} of these {len(data)} clips" in found.stderr
    (file,) = tmp_path.glob("*.json")
    assert json.loads(file.read_text())["details"]["heard_before"]["n"] == len(data)


# --- odd clips


def test_silent_and_very_short_clips_are_odd() -> None:
    rate = 32_000
    assert oddity(np.full(7, 0.1, np.float32), rate) == "only 0.2 ms long (7 samples at 32000 Hz)"
    assert oddity(np.zeros(rate, np.float32), rate) == "silent (peak digital zero)"
    assert "silent" in str(oddity(np.full(rate, 1e-5, np.float32), rate))
    assert oddity(np.full(rate, 0.1, np.float32), rate) is None


def test_odd_and_skipped_clips_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "sounds" / "noise"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    soundfile.write(folder / "fine.wav", rng.normal(0, 0.1, 32_000), 32_000)
    soundfile.write(folder / "silent.wav", np.zeros(32_000), 32_000)
    soundfile.write(folder / "tiny.wav", rng.normal(0, 0.1, 5), 32_000)
    (folder / "broken.wav").write_text("not audio")
    call = ["extract", "--root", str(tmp_path / "sounds"), "--out", str(tmp_path / "run")]
    found = runner.invoke(build(), [*call, "-m", "htsat-tiny-random"])
    assert found.exit_code == 3, found.output
    assert "skipped: noise/broken.wav" in found.stderr
    assert "odd: noise/silent.wav: silent" in found.stderr
    assert "odd: noise/tiny.wav: only 0.2 ms long" in found.stderr
    assert "fine.wav" not in found.stderr


# --- the folder of a run


def test_a_run_remembers_where_its_sounds_are(tmp_path: Path) -> None:
    (tmp_path / "sounds").mkdir()
    run = tmp_path / "runs" / "mine"
    remember_source(run, RunSource("folder", tmp_path / "sounds", {"group": "x"}))
    assert str(tmp_path) not in (run / NAME).read_text()
    known = recall_source(run, "folder")
    assert known.root is not None
    assert known.root.resolve() == (tmp_path / "sounds").resolve()
    assert known.options == {"group": "x"}
    assert recall_source(run, "esc50") == RunSource("esc50")
    (tmp_path / "sounds").rmdir()
    assert recall_source(run, "folder").root is None


def test_ablate_does_not_ask_for_the_folder_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for label in ("high", "low"):
        (tmp_path / "sounds" / label).mkdir(parents=True)
        for i in range(2):
            wave = rng.normal(0, 0.1, 16_000)
            soundfile.write(tmp_path / "sounds" / label / f"{i}.wav", wave, 16_000)
    run = str(tmp_path / "run")
    call = ["extract", "--root", str(tmp_path / "sounds"), "-o", run, "--capture", "heads,direct"]
    assert runner.invoke(build(), call).exit_code == 0
    done = runner.invoke(build(), ["ablate", run, "-u", "s3", "--method", "exact", "--no-curves"])
    assert done.exit_code == 0, done.output


# --- embeddings in pieces


def test_what_was_embedded_is_kept_when_work_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path))
    monkeypatch.setattr(of_dataset, "PIECE", 8)
    data, model = labelled()
    whole = embed_clips(model, data, of_dataset.EmbeddingSettings(cache=False))
    embedded: list[int] = []
    embed = FakeModel.embed_windows

    def counting(self: FakeModel, waves):  # type: ignore[no-untyped-def]
        if sum(embedded) >= 16 and stop:
            raise KeyboardInterrupt
        embedded.append(len(waves))
        return embed(self, waves)

    monkeypatch.setattr(FakeModel, "embed_windows", counting)
    stop = True
    with pytest.raises(KeyboardInterrupt):
        embed_clips(model, data)
    stop, before = False, sum(embedded)
    seen: list[tuple[str, int]] = []

    class Seen(Progress):
        def step(self, name: str, total: int | None = None, unit: str = "clips") -> None:
            seen.append(("step", total or 0))

        def advance(self, n: int = 1, said: str = "") -> None:
            seen.append(("advance", n))

    again = embed_clips(model, data, progress=Seen())
    assert sum(embedded) - before == len(data) - 16
    np.testing.assert_array_equal(again.vectors, whole.vectors)
    assert again.ids == whole.ids
    assert [n for kind, n in seen if kind == "step"] == [len(data)]
    assert sum(n for kind, n in seen if kind == "advance") == len(data)


# --- bounds, and what cannot be computed


def test_no_interval_of_a_probe_leaves_its_bounds() -> None:
    rng = np.random.default_rng(0)
    audio = rng.normal(size=(24, 6))
    clouds = make_clouds(
        audio, audio + 0.05 * rng.normal(size=audio.shape), pairs=np.stack([np.arange(24)] * 2, 1),
        groups=[str(i) for i in range(24)], model="m", dataset="d", split="all", record={},
    )  # fmt: skip
    found = probe(clouds, n_halves=20)
    for score in found.scores:
        least, most = bounds(score.name, score.n, 6)
        assert not score.low < least, score
        assert not score.high > most, score
    assert found["pair_auc"].high <= 1.0


def test_four_pieces_of_one_voice_have_no_interval_below_one() -> None:
    assert mean_interval(np.ones(4), shares=False) == (1.0, 1.0)
    assert mean_interval(np.ones(4))[0] < 0.6  # four hits of four are a proportion


def test_a_study_of_one_cell_is_one_sentence() -> None:
    cells = Cells(("m",), ("b",), {"p": np.ones(1)}, {"s": np.ones(1)})
    with pytest.raises(InputError, match="at least 3 cells"):
        correlate(cells)


def test_two_systems_have_no_friedman_test(tmp_path: Path) -> None:
    rows = ["listener,trial,a,b"]
    rows += [f"l{i},t{j},{50 + 5 * i + j},{60 + 3 * i}" for i in range(4) for j in range(3)]
    (tmp_path / "r.csv").write_text("\n".join(rows))
    call = ["mushra", str(tmp_path / "r.csv"), "--scale", "0,100", "--out", str(tmp_path)]
    found = runner.invoke(build(), call)
    assert found.exit_code == 0, found.output
    assert "does not apply here" in found.stdout
    assert "nan" not in found.stdout


def test_the_strongest_control_stands_beside_the_methods() -> None:
    def row(key: str, kind: str, top1: str) -> dict[str, str]:
        return {"key": key, "kind": kind, "top1": top1, "method": key}

    rows = [
        row("zero-shot", "reference", "0.3"),
        row("heads", "residual", "0.5"),
        row("coarse", "control", "0.4"),
        row("random", "control", "0.6"),
        row("probe", "baseline", "0.7"),
        row("ridge", "baseline", "0.2"),
        {"key": "x", "kind": "control", "failed": "why", "method": "x"},
    ]
    assert [r["key"] for r in chosen_rows(rows)] == ["zero-shot", "heads", "random", "probe"]


# --- Ctrl-C


def test_ctrl_c_in_a_sweep_prints_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    from residual_audio.adaptation import search

    def stop(*_: object) -> float:
        raise KeyboardInterrupt

    fold = SimpleNamespace(name="1", seed=0, fit=[1], held_out=[0])
    monkeypatch.setattr(search, "splits_of", lambda *_: [fold])
    monkeypatch.setattr(search, "suggest", stop)
    problem = SimpleNamespace(on=lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        search.sweep(problem, None, tmp_path / "x.db", n_trials=2)  # type: ignore[arg-type]
    assert "Traceback" not in capfd.readouterr().err
