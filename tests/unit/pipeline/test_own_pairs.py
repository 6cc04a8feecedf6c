"""A model adapted to one's own pairs: judged, written, and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from peft import PeftModel
from small_clap import save_small_clap
from transformers import ClapModel

import residual_audio as ra
from residual_audio.adaptation.problem import problem_of
from residual_audio.cli import main
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError
from residual_audio.models.registry import load_model
from residual_audio.passes.kept import load_passes
from residual_audio.passes.loop import Hearing
from residual_audio.pipeline import fine_tuned, own_pairs
from residual_audio.pipeline.fine_tuned import LoopFineTuning
from residual_audio.pipeline.own_pairs import PairSettings, adapt_to_pairs

N = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of synthetic sounds as files, with labels and captions in two tables."""
    folder = tmp_path_factory.mktemp("pairs")
    made = ra.load_dataset("synthetic", n_clips=246).select(classes=["rain", "wind"])
    assert len(made.clips) == N
    labels, captions = ["path,label"], ["path,caption"]
    for i, clip in enumerate(made.clips):
        soundfile.write(folder / f"{i}.wav", made.read(clip, 16_000, 2.0), 16_000)
        labels.append(f"{i}.wav,{clip.label}")
        captions.append(f'{i}.wav,"number {i}, {clip.label}"')
    (folder / "labels.csv").write_text("\n".join(labels) + "\n")
    (folder / "captions.csv").write_text("\n".join(captions) + "\n")
    return folder


@pytest.fixture
def labelled(folder: Path) -> Dataset:
    return load_dataset("manifest", folder / "labels.csv")


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("how", ["head", "lora", "residual", "all"])
def test_what_is_written_is_what_was_fitted(how, labelled, tmp_path: Path, monkeypatch) -> None:
    # nothing chosen, so that a step is sure to be taken
    monkeypatch.setattr(own_pairs, "whole_split", _without_held_out)
    model = load_model("nano", "cpu")
    before = state_of(model)
    asked = PairSettings(how, n_folds=2, epochs=1)
    found = adapt_to_pairs(model, labelled, tmp_path / "out", asked)
    again = load_model(str(found.checkpoint), "cpu")
    changed = [k for k, v in again.state_dict().items() if not torch.equal(v, before[k])]
    place = {"head": "head.", "all": "encoder."}.get(how, "encoder.stages")
    assert changed
    assert all(name.startswith(place) for name in changed)
    if how == "residual":  # folded: W_O and its bias alone
        assert {name.split(".")[-2] for name in changed} == {"proj"}
    if how == "all":  # every part of the encoder, and no statistics of much more data
        assert {name.split(".")[1] for name in changed} >= {"patch", "stages", "norm"}
        assert not any("running" in name for name in changed)
    assert found.after.n == N
    assert found.before.chance == 0.5
    record = json.loads((found.checkpoint / "residual_audio.json").read_text())
    if how != "residual":
        assert record["trained"]["low_rank"] is (how == "lora")
    assert not (tmp_path / "out" / "fits").exists()
    card = (found.checkpoint / "README.md").read_text()
    assert "base_model: nano" in card
    assert "top1_gain" in card
    assert "license: cc-by-nc-3.0" in card


def _without_held_out(problem, seed):
    from residual_audio.adaptation.divisions import Split

    everyone = np.arange(len(problem))
    return Split("all", everyone, everyone[:0], everyone[:2], seed)


def test_a_stopped_call_goes_on_and_others_do_not_mix(labelled, tmp_path, monkeypatch) -> None:
    asked = PairSettings("head", n_folds=2, epochs=1)
    run, calls = own_pairs.compare, []

    def counted(*given, **about):
        calls.append(about["how"].only)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(*given, **about)

    monkeypatch.setattr(own_pairs, "compare", counted)
    with pytest.raises(KeyboardInterrupt):
        adapt_to_pairs(load_model("nano", "cpu"), labelled, tmp_path / "out", asked)
    found = adapt_to_pairs(load_model("nano", "cpu"), labelled, tmp_path / "out", asked)
    assert len(calls) == 3  # the first fold was not fitted again
    once = adapt_to_pairs(load_model("nano", "cpu"), labelled, tmp_path / "out", asked)
    assert len(calls) == 3
    assert once.after == found.after
    other = PairSettings("head", n_folds=2, epochs=2)
    with pytest.raises(InputError, match="other clips or with other settings"):
        adapt_to_pairs(load_model("nano", "cpu"), labelled, tmp_path / "out", other)


def test_fine_tuning_goes_on_where_it_was_stopped(labelled, tmp_path, monkeypatch) -> None:
    """A fit that is stopped in the middle ends in the same weights as one that was not."""
    store = ra.extract("nano", labelled, tmp_path / "run").store
    model = load_model("nano", "cpu")
    ids = [str(name) for name in store.clips["id"]]
    problem = problem_of(store, passes=load_passes(model, labelled, ids, Hearing("first")))
    split = _without_held_out(problem, 0)
    before = state_of(model)
    whole = LoopFineTuning(tmp_path / "whole", epochs=2, batch_size=6).fit(problem, split)
    stopped = LoopFineTuning(tmp_path / "stopped", epochs=2, batch_size=6)
    monkeypatch.setattr(fine_tuned, "CHECKPOINT_EVERY", 2)
    loop = fine_tuned.train
    monkeypatch.setattr(
        fine_tuned, "train", lambda *given, **about: loop(*given, **about, stop_after=2)
    )
    stopped.fit(problem, split)
    monkeypatch.setattr(fine_tuned, "train", loop)
    again = stopped.fit(problem, split)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())  # put back
    for (_, want), (_, found) in zip(whole.weights, again.weights, strict=True):
        torch.testing.assert_close(found, want)
    (folder,) = (tmp_path / "stopped").iterdir()
    lines = (folder / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


def test_labels_are_enough_for_a_model_without_texts(labelled, tmp_path: Path) -> None:
    model = load_model("nano", "cpu")
    model.text = None
    asked = PairSettings("lora", n_folds=2, epochs=1)
    found = adapt_to_pairs(model, labelled, tmp_path / "out", asked)
    assert found.after.n == N
    assert "feature-extraction" in (found.checkpoint / "README.md").read_text()


def test_captions_are_judged_among_those_of_their_fold(folder, tmp_path: Path) -> None:
    data = load_dataset("manifest", folder / "captions.csv")
    model = load_model("nano", "cpu")
    asked = PairSettings("lora", n_folds=2, epochs=1)
    found = adapt_to_pairs(model, data, tmp_path / "out", asked)
    assert found.after.name == "recall_at_1"
    assert found.after.chance == pytest.approx(2 / N)
    result = json.loads(found.result.read_text())
    assert result["details"]["by"] == "captions"
    assert found.before.n == N


def test_lora_as_an_adapter_that_peft_opens(labelled, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(own_pairs, "whole_split", _without_held_out)
    base = save_small_clap(tmp_path / "clap")
    model = load_model(f"hf:{base}", "cpu")
    # the small model has no vocabulary: any texts will do
    monkeypatch.setattr(
        type(model),
        "embed_text",
        lambda self, texts, **about: np.eye(24, dtype=np.float32)[: len(texts)],
    )
    asked = PairSettings("lora", "peft", n_folds=2, epochs=1)
    found = adapt_to_pairs(model, labelled, tmp_path / "out", asked)
    adapted = PeftModel.from_pretrained(ClapModel.from_pretrained(base).eval(), found.checkpoint)
    features = model.features(0.1 * torch.randn(1, model.spec.n_samples))
    with torch.no_grad():
        theirs = adapted.get_audio_features(input_features=features[:, None])
        ours = torch.nn.functional.normalize(model.joint(model.encode(features)), dim=-1)
    theirs = torch.nn.functional.normalize(getattr(theirs, "pooler_output", theirs), dim=-1)
    np.testing.assert_allclose(theirs.numpy(), ours.numpy(), atol=1e-5)


def test_the_command_says_scores_and_where_and_names_bad_rows(
    folder, tmp_path, monkeypatch, capsys
) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    last = ",".join(lines[-1].split(",")[1:])
    (folder / "damaged.wav").write_bytes(b"RIFFnothing")
    table = folder / "some-bad.csv"
    table.write_text("\n".join([*lines, f"damaged.wav,{last}", f"gone.wav,{last}"]) + "\n")
    command = ["adapt", "-d", "manifest", "--root", str(table), "--how", "head"]
    command += ["--out", str(tmp_path / "out"), "--folds", "2", "--epochs", "1", "--json"]
    monkeypatch.setattr("sys.argv", ["residual-audio", *command])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 3
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert [score["name"] for score in said["scores"]] == ["top1_before", "top1", "top1_gain"]
    assert (Path(said["checkpoint"]) / "config.json").is_file()
    assert set(said["skipped"]) == {"damaged.wav", "gone.wav"}
    assert "skipped damaged.wav: " in printed.err
    assert "skipped gone.wav: " in printed.err


def test_tables_without_texts_are_refused(folder, tmp_path: Path) -> None:
    lines = (folder / "captions.csv").read_text().splitlines()
    (folder / "gap.csv").write_text("\n".join([*lines[:-1], "11.wav,"]) + "\n")
    data = load_dataset("manifest", folder / "gap.csv")
    with pytest.raises(InputError, match=r"'11.wav' has neither label nor caption"):
        adapt_to_pairs(load_model("nano", "cpu"), data, tmp_path / "out", PairSettings("head"))
    full = load_dataset("manifest", folder / "labels.csv")
    asked = PairSettings("head", "peft", n_folds=2, epochs=1)
    with pytest.raises(InputError, match="no low-rank update"):
        adapt_to_pairs(load_model("nano", "cpu"), full, tmp_path / "other", asked)
    assert not (tmp_path / "other").exists()
