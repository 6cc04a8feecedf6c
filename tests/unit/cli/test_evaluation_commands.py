"""The evaluation commands from the outside: tables, JSON, files and exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
from evaluation_fakes import D, FakeModel, captioned, labelled, paired
from music_fakes import write_midi

from residual_audio.cli import main
from residual_audio.data.base import Dataset
from residual_audio.errors import ModelError

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Run a command in an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["residual-audio", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        shown = capsys.readouterr()
        return int(stopped.value.code or 0), shown.out, shown.err

    return run


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Dataset, FakeModel]]:
    """`evaluate` and the others find fake models and data sets under these names."""
    known: dict[str, tuple[Dataset, FakeModel]] = {}

    def load_model(name: str, device: str = "auto") -> FakeModel:
        if name not in known:
            raise ModelError(f"unknown model '{name}'")
        return known[name][1]

    def load_dataset(name: str, root: Any = None, **options: Any) -> Dataset:
        kind = options.get("kind")
        found = known[kind or name][0]
        return replace(found, recipe=f"kind={kind}") if kind else found

    import_module("residual_audio.surface.probed")  # has the real ones before they are replaced
    monkeypatch.setattr("residual_audio.models.registry.load_model", load_model)
    monkeypatch.setattr("residual_audio.surface.model.Model.of", lambda model: model)
    monkeypatch.setattr("residual_audio.passes.sources.oddity", lambda *_: None)  # 16 samples
    monkeypatch.setattr("residual_audio.data.registry.load_dataset", load_dataset)
    return known


def _named(pair: tuple[Dataset, FakeModel], name: str) -> tuple[Dataset, FakeModel]:
    pair[1].name, pair[1].sha256 = name, name
    return pair


def test_evaluate_zero_shot(call: Call, fakes: dict, tmp_path: Path) -> None:
    fakes["good"] = _named(labelled(), "good")
    fakes["worse"] = _named(labelled(noise=4.0), "worse")
    fakes["synthetic"] = labelled(noise=1.5)
    code, out, _ = call("evaluate", "--model", "good", "--model", "worse", "--log-items", "--json")
    assert code == 0
    document = json.loads(out, parse_constant=pytest.fail)
    assert [r["model"] for r in document["results"]] == ["good", "worse"]
    scores = {s["name"]: s for s in document["results"][0]["scores"]}
    assert set(scores) == {"top1", "top5", "macro_f1", "map", "ece"}
    assert set(scores["top1"]) == {"name", "value", "low", "high", "n", "chance"}
    assert document["differences"][0]["score"] == "top1"
    for name in document["files"]:
        written = json.loads((tmp_path / name).read_text())
        assert written["provenance"]["command"][:2] == ["residual-audio", "evaluate"]
        items = pq.read_table(tmp_path / "results" / written["per_item_file"])
        assert items.num_rows == 36
    code, out, err = call("evaluate", "--model", "good", "--out", "elsewhere")
    assert code == 0
    assert "top1" in out
    assert "chance" in out
    assert "elsewhere" in out
    assert err == ""


def test_evaluate_retrieval_and_exit_code_for_skipped_clips(call: Call, fakes: dict) -> None:
    data, model = captioned(noise=0.5)
    make = data.make

    def read(clip: Any, rate: int) -> np.ndarray:
        if clip.id == "c3":
            from residual_audio.errors import AudioError

            raise AudioError("'c3' is empty")
        assert make is not None
        return make(clip, rate)

    from dataclasses import replace

    fakes["m"] = (data, model)
    fakes["synthetic"] = (replace(data, make=read), model)
    code, out, err = call("evaluate", "--task", "retrieval", "-m", "m")
    assert code == 3
    assert "t2a_r1" in out
    assert "skipped: c3" in err


def test_evaluate_errors_are_one_line(call: Call, fakes: dict) -> None:
    fakes["synthetic"] = labelled()
    code, _, err = call("evaluate", "-m", "nobody")
    assert code == 1
    assert err.strip() == "error: unknown model 'nobody'"
    fakes["m"] = labelled()
    code, _, err = call("evaluate", "-m", "m", "--prompts", "nothing here")
    assert code == 1
    assert "'nothing here' is neither" in err
    code, _, err = call("evaluate", "-m", "m", "--task", "retrieval")
    assert code == 1
    assert "no captions" in err
    code, _, err = call("evaluate", "-m", "m", "-d", "synthetic", "--root", "a", "--root", "b")
    assert code == 1
    assert "2 --root" in err
    assert call("evaluate", "--task", "nonsense")[0] == 2


def test_compa(call: Call, fakes: dict) -> None:
    fakes["m"] = paired()
    fakes["order"] = paired()
    fakes["attribute"] = paired(swap=True)
    code, out, _ = call("compa", "-m", "m", "--json", "--items", "10")
    assert code == 0
    document = json.loads(out)
    assert [r["split"] for r in document["results"]] == ["order", "attribute"]
    scores = {s["name"]: s for s in document["results"][0]["scores"]}
    assert scores["h"]["chance"] == pytest.approx(1 / 6)
    assert scores["f"]["chance"] == 0.25
    assert scores["both_one_sided"]["chance"] == pytest.approx(1 / 3)
    code, out, _ = call("compa", "-m", "m", "--kind", "order")
    assert code == 0
    assert "fail by text" in out


def test_probe_files_models_and_study(call: Call, fakes: dict, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, noise in (("a", 0.2), ("b", 2.0)):
        audio = rng.normal(size=(60, 12))
        np.savez(
            tmp_path / f"{name}.npz", audio=audio, text=audio + noise * rng.normal(size=audio.shape)
        )
    code, out, _ = call("probe", "a.npz", "b.npz", "--halves", "5", "--json")
    assert code == 0
    document = json.loads(out, parse_constant=pytest.fail)
    assert [r["model"] for r in document["results"]] == ["a", "b"]
    code, out, _ = call("probe", "measure", "a.npz", "--halves", "0")
    assert code == 0
    assert "rankme_text" in out
    np.save(tmp_path / "t.npy", rng.normal(size=(60, 12)))
    np.save(tmp_path / "s.npy", rng.normal(size=(60, 12)))
    assert call("probe", "s.npy", "--text", "t.npy", "--halves", "0")[0] == 0
    assert call("probe", "s.npy", "t.npy", "--text", "t.npy")[0] == 1

    for k in range(4):
        data = labelled(noise=1.0 + k)
        fakes[f"m{k}"] = _named(data, f"m{k}")
    fakes["synthetic"] = labelled(noise=2.0)
    models = [part for k in range(4) for part in ("-m", f"m{k}")]
    assert call("evaluate", *models, "--quiet")[0] == 0
    assert call("probe", *models, "--dataset", "synthetic", "--halves", "0", "--quiet")[0] == 0
    code, out, err = call("probe", "study", "results", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["n_cells"] == 4
    assert any("only 4 cells" in w for w in found["warnings"])
    code, _, err = call("probe", "study")
    assert code == 1
    assert "--from-table" in err
    assert call("probe")[0] in (0, 2)  # help


def test_study_from_table(call: Call, tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text(
        "model,bench,H,rankme_text\n"
        + "".join(f"m{i},b{i % 2},{i / 10},{i * i}\n" for i in range(6))
    )
    code, out, _ = call("probe", "study", "--from-table", "cells.csv", "--json", "--out", "study")
    assert code == 0
    (row,) = json.loads(out)["correlations"]
    assert row["spearman"] == pytest.approx(1)
    assert (tmp_path / "study" / "study_H.png").is_file()
    assert json.loads((tmp_path / "study" / "study.json").read_text())["n_cells"] == 6
    code, out, err = call("probe", "study", "--from-table", "cells.csv", "--score", "H")
    assert code == 0
    assert "+1.000" in out
    assert "only 6 cells" in err


def test_compare(call: Call, fakes: dict, tmp_path: Path) -> None:
    fakes["m"] = captioned(n=40)
    fakes["synthetic"] = captioned(n=40)
    code, out, _ = call("compare", "m", "--json", "--out", "cards.json")
    assert code == 0
    (card,) = json.loads(out)["cards"]
    assert card["verdict"] == "no failure found"
    assert card["numbers"]["auc"] == pytest.approx(1)
    assert (tmp_path / "cards.json").is_file()
    code, out, _ = call("compare", "m")
    assert code == 0
    assert "no failure found" in out


def test_two_models_are_one_table_with_differences(call: Call, fakes: dict) -> None:
    fakes["a"], fakes["synthetic"] = captioned(n=40), captioned(n=40)
    other = FakeModel("b")  # knows none of the captions
    fakes["b"] = (fakes["a"][0], other)
    code, out, _ = call("compare", "a", "b", "--json")
    first, second = (card["numbers"] for card in json.loads(out)["cards"])
    code, out, _ = call("compare", "a", "b")
    assert code == 0
    (auc,) = (line for line in out.splitlines() if re.match(r"[│┃|]?\s*auc\s", line))
    cells = [float(cell) for cell in re.findall(r"[-+]?\d+\.\d+", auc)]
    assert cells == pytest.approx(
        [first["auc"], second["auc"], second["auc"] - first["auc"]], abs=6e-4
    )
    assert second["auc"] < first["auc"] - 0.2


def test_fad_and_its_statistics(call: Call, fakes: dict, tmp_path: Path) -> None:
    fakes["nano"] = labelled()
    rng = np.random.default_rng(0)
    for folder in ("ref", "gen"):
        (tmp_path / folder).mkdir()
        for i in range(8):
            wave = (0.1 * rng.normal(size=2 * D)).astype(np.float32)
            soundfile.write(tmp_path / folder / f"{i}.wav", wave, 1000, subtype="FLOAT")
    code, out, _ = call("fad", "ref", "gen", "--json")
    assert code == 0
    names = [s["name"] for s in json.loads(out)["scores"]]
    assert names == ["fad", "fad_infinity", "mmd"]
    assert list((tmp_path / "results").glob("fad_*.png"))
    assert call("fad", "ref", "--save-stats", "ref.npz")[0] == 0
    code, out, err = call("fad", "ref.npz", "gen")
    assert code == 0
    assert "fad_infinity" in out
    assert "chance" not in out  # a distance has none
    assert "of the reference remains" in err
    assert call("fad", "ref")[0] == 1
    code, _, err = call("fad", "ref", "nowhere")
    assert code == 1
    assert "'nowhere' is not there" in err
    (tmp_path / "empty").mkdir()
    code, _, err = call("fad", "ref", "empty")
    assert code == 1
    assert "no audio file" in err


def test_music_and_mushra(call: Call, fakes: dict, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for folder in ("ref", "gen"):
        for i in range(3):
            pitches = [int(pitch) for pitch in rng.integers(55, 80, 24)]
            write_midi(tmp_path / folder / f"{i}.mid", pitches, step_s=0.25)
    code, out, _ = call("music", "ref", "gen", "--json", "--resamples", "50")
    assert code == 0
    assert "pitch_class_kl" in {s["name"] for s in json.loads(out)["scores"]}
    code, out, _ = call("music", "symbolic", "ref", "gen", "--resamples", "50")
    assert code == 0
    assert "inter_onset_entropy" in out

    rows = [
        f"l{j},t{t},{system},{60 + 10 * k + j + t}\n"
        for j in range(5)
        for t in range(2)
        for k, system in enumerate("ABC")
    ]
    (tmp_path / "m.csv").write_text("listener,trial,system,score\n" + "".join(rows))
    code, out, _ = call("mushra", "m.csv", "--scale", "0,100", "--json")
    assert code == 0
    assert json.loads(out)["details"]["n_listeners"] == 5
    assert list((tmp_path / "results").glob("mushra_*.png"))
    code, out, err = call("mushra", "m.csv")
    assert code == 0
    assert "Friedman" in out
    assert "guessed" in err
    assert call("mushra", "m.csv", "--scale", "1,5")[0] == 1
    assert call("mushra", "m.csv", "--scale", "x")[0] == 1

    study = {"reference": {"midi": "ref"}, "systems": {"A": {"midi": "gen"}}, "ratings": "m.csv"}
    (tmp_path / "study.json").write_text(json.dumps(study))
    code, out, err = call("music", "report", "study.json")
    assert code == 0, err
    assert "pitch_class_kl" in out
    code, out, _ = call("music", "report", "study.json", "--json")
    assert json.loads(out)["systems"] == ["A"]


def test_clap_score_command(call: Call, fakes: dict, tmp_path: Path) -> None:
    fakes["nano"] = labelled()
    (tmp_path / "gen").mkdir()
    for i in range(3):
        wave = np.random.default_rng(i).normal(size=D).astype(np.float32) * 0.1
        soundfile.write(tmp_path / "gen" / f"{i}.wav", wave, 1000, subtype="FLOAT")
        (tmp_path / "gen" / f"{i}.txt").write_text(f"sound {i}")
    code, out, _ = call("music", "clap-score", "gen", "--json")
    assert code == 0
    assert json.loads(out)["scores"][0]["name"] == "clap_score"
    assert call("music", "clap-score", "gen")[0] == 0
