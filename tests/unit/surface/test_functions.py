"""The functions that the commands are a thin skin over, from sounds to a folded checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from tiny_model import tiny_model

import residual_audio as ra
from residual_audio.errors import DatasetError, InputError, ModelError
from residual_audio.types import Result, Score

CLASSES = 3


@pytest.fixture(scope="module")
def model() -> ra.Model:
    return tiny_model()


@pytest.fixture(scope="module")
def sounds() -> ra.Dataset:
    whole = ra.load_dataset("synthetic", n_clips=246)
    return whole.select(classes=whole.classes[:CLASSES])


@pytest.fixture(scope="module")
def run(model: ra.Model, sounds: ra.Dataset, tmp_path_factory: pytest.TempPathFactory) -> ra.Run:
    return ra.extract(model, sounds, tmp_path_factory.mktemp("run") / "mine")


@pytest.fixture(scope="module")
def files(sounds: ra.Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("files")
    for i, clip in enumerate(sounds.clips[:6]):
        soundfile.write(folder / f"{i}.wav", sounds.read(clip, 8000)[:8000], 8000)
    return sorted(folder.iterdir())


def test_a_run_says_what_it_is(run: ra.Run, sounds: ra.Dataset) -> None:
    assert repr(run) == (
        f"Run mine: {len(sounds)} clips of synthetic through tiny; embedding, heads, direct"
    )
    again = ra.Run(run.folder)
    assert len(again) == len(sounds)
    with pytest.raises(ra.ResidualAudioError, match="no store"):
        _ = ra.Run(run.folder / "elsewhere").store


def test_files_are_a_data_set(model: ra.Model, files: list[Path], tmp_path: Path) -> None:
    labels = ["a", "b"] * 3
    run = ra.extract(model, files, tmp_path / "run", labels=labels)
    assert list(run.store.clips["id"]) == [file.name for file in files]
    assert run.store.classes == ("a", "b")
    found = ra.ablate(run, "s3.b0.h0", model=model)
    plain = ra.evaluate(model, run.dataset, cache=False)
    assert found["correct_before"][0] == pytest.approx(plain["top1"].value)
    for wrong, why in (
        ([], "no file in the list"),
        ([files[0], files[0]], "twice"),
        ([files[0].parent / "none.wav"], "no file"),
    ):
        with pytest.raises((InputError, DatasetError), match=why):
            ra.extract(model, wrong, tmp_path / "other")
    with pytest.raises(InputError, match="2 labels for 6 files"):
        ra.extract(model, files, tmp_path / "other", labels=["a", "b"])


def test_top_heads(run: ra.Run) -> None:
    found = ra.analyse(run, "separability")
    top = found.heads.top("fisher_trace", 4)
    assert len(top) == 4
    assert (np.diff(top["fisher_trace"]) <= 0).all()
    assert "heads: 24 rows" in repr(found)
    with pytest.raises(InputError, match="tables: heads"):
        found["nothing"]


def test_ablation_is_an_edit_measured(run: ra.Run, model: ra.Model, sounds: ra.Dataset) -> None:
    """Exact ablation of a head is the evaluation of the model with that head at zero."""
    found = ra.ablate(run, ["s3.b0.h1", "s2"], model=model)
    for row in found.rows():
        edited = ra.evaluate(model, sounds, edit={row["unit"]: ra.zero()}, cache=False)
        assert row["correct_after"] == pytest.approx(edited["top1"].value)
    plain = ra.evaluate(model, sounds, cache=False)
    assert found["correct_before"][0] == pytest.approx(plain["top1"].value)
    assert (found["margin_low"] <= found["margin_change"]).all()
    assert (found["margin_change"] <= found["margin_high"]).all()
    direct = ra.ablate(run, "s3.b0.h1")
    assert "direct" in direct.caption
    with pytest.raises(InputError, match="no unit"):
        ra.ablate(run, "s9.b0.h0")
    with pytest.raises(ModelError, match="is not the model"):
        ra.ablate(run, "s3.b0.h1", model=tiny_model(seed=5))


def test_gains_reach_the_score_that_fitting_promised(
    run: ra.Run, model: ra.Model, sounds: ra.Dataset
) -> None:
    fitted = ra.adapt(run, ra.ResiDual(stages=(2, 3)))
    assert fitted.score.n == len(sounds)
    assert fitted.score.chance == pytest.approx(1 / len(sounds.classes))
    assert fitted.gain.value == pytest.approx(fitted.score.value - fitted.before.value)
    assert "top1 before" in repr(fitted)
    assert fitted.gains is not None
    with pytest.warns(UserWarning, match="no score on held-out clips"):
        found = ra.evaluate(model, sounds, gains=fitted.gains, cache=False)
    assert found.task == "adapted"
    assert found.model.startswith("tiny + gains")
    # held out: gains of each fold on the fold they were fitted without
    hits = 0.0
    for fold, gains in fitted.fold_gains.items():
        part = ra.evaluate(model, sounds, edit=gains, folds=[fold], cache=False)
        hits += part["top1"].value * part["top1"].n
    assert hits / len(sounds) == pytest.approx(fitted.score.value)


def test_folds_apart_are_no_reason_to_warn(
    run: ra.Run, model: ra.Model, sounds: ra.Dataset, recwarn: pytest.WarningsRecorder
) -> None:
    first, *others = sorted({clip.fold for clip in sounds.clips if clip.fold is not None})
    fitted = ra.adapt(run, ra.ResiDual(stages=(3,)), folds=others)
    assert fitted.gains is not None
    ra.evaluate(model, sounds, gains=fitted.gains, folds=first, cache=False)
    assert not [w for w in recwarn if "held-out" in str(w.message)]


def test_methods_by_key_and_what_they_need(run: ra.Run) -> None:
    assert ra.adapt(run, "ridge").gains is None
    assert ra.adapt(run, ra.Rule("fisher")).gains is not None
    with pytest.raises(InputError, match="give model="):
        ra.adapt(run, ra.LoRA())
    with pytest.raises(InputError, match="no method 'magic'"):
        ra.adapt(run, "magic")
    with pytest.raises(InputError, match="needs what this run has not"):
        ra.adapt(run, ra.ResiDual(stages=(7,)))


def test_network_gains_fold_into_a_model_of_its_own(
    run: ra.Run, model: ra.Model, sounds: ra.Dataset, tmp_path: Path
) -> None:
    from residual_audio.reweight.descent import FitSettings

    quick = FitSettings(epochs=2, learning_rate=0.1, batch_size=8)
    method = ra.ResiDual(stages=(3,), path="network", settings=quick)
    fitted = ra.adapt(run, method, model=model, folds=[1, 2])
    assert fitted.gains is not None
    waves = [sounds.read(clip, 8000) for clip in sounds.clips[:3]]
    plain = model.embed_audio(waves, sample_rate=8000)
    folded = ra.fold(model, fitted.gains)
    want = model.embed_audio(waves, sample_rate=8000, edit=fitted.gains)
    np.testing.assert_allclose(folded.embed_audio(waves, sample_rate=8000), want, atol=1e-5)
    np.testing.assert_array_equal(model.embed_audio(waves, sample_rate=8000), plain)
    assert np.abs(want - plain).max() > 1e-5
    assert folded.sha256 != model.sha256
    with pytest.raises(InputError, match="direct path"):
        ra.fold(model, ra.adapt(run, ra.Rule("fisher")).gains)  # type: ignore[arg-type]
    path = ra.save_gains(fitted.gains, tmp_path / "gains")
    saved = model.with_edit(ra.load_gains(path))
    assert saved.sha256 == model.with_edit(fitted.gains).sha256


def test_a_folded_model_is_saved_with_what_was_folded(tmp_path: Path) -> None:
    model = ra.load_model("nano")
    spectrum = ra.Spectrum(np.zeros(12), np.eye(12), np.ones(12), 100)
    folded = ra.fold(model, ra.Gains({"s3.b1.h0": np.zeros(12)}, {"s3.b1.h0": spectrum}), 0.5)
    folded.save(tmp_path / "adapted")
    again = ra.load_model(str(tmp_path / "adapted"))
    noise = np.random.default_rng(0).normal(size=32_000) / 10
    np.testing.assert_allclose(
        again.embed_audio([noise], sample_rate=32_000),
        folded.embed_audio([noise], sample_rate=32_000),
        atol=1e-6,
    )
    assert '"amount": 0.5' in (tmp_path / "adapted" / "config.json").read_text()
    with pytest.raises(ModelError, match="edited in every pass"):
        ra.fold(model.with_edit({"s3": ra.zero()}), folded.gains)


def test_gains_are_folded_one_after_another_and_saved_for_transformers(tmp_path: Path) -> None:
    """`ra.fold(model, gains).save("adapted/", to="hf")`: transformers' own class opens it."""
    import torch
    from small_clap import save_small_clap
    from transformers import ClapModel

    model = ra.load_model(f"hf:{save_small_clap(tmp_path / 'clap')}", "cpu")
    (width,) = {site.d_head for site in model.encoder.sites if site.kind == "attention"}
    spectrum = ra.Spectrum(np.zeros(width), np.eye(width), np.ones(width), 100)
    names = ("s2.b5.h0", "s3.b0.h1")
    each = [ra.Gains({unit: np.zeros(width)}, {unit: spectrum}) for unit in names]
    folder = ra.fold(model, each).save(tmp_path / "adapted", to="hf")
    noise = np.random.default_rng(0).normal(size=480_000) / 10
    edited = model.with_edit(each[0]).with_edit(each[1])
    want = edited.embed_audio([noise], sample_rate=48_000)
    assert np.abs(model.embed_audio([noise], sample_rate=48_000) - want).max() > 1e-4
    features = model.features(torch.from_numpy(model.windows(noise)).float())
    with torch.no_grad():
        theirs = ClapModel.from_pretrained(folder).eval().get_audio_features(features[:, None])
    theirs = torch.nn.functional.normalize(getattr(theirs, "pooler_output", theirs), dim=-1)
    np.testing.assert_allclose(theirs.numpy(), want, atol=1e-5)
    assert (folder / "README.md").is_file()


def test_probe_of_a_run_and_of_its_model_agree(
    run: ra.Run, model: ra.Model, sounds: ra.Dataset
) -> None:
    of_run = ra.probe(run, n_halves=2)
    of_model = ra.probe(model, sounds, n_halves=2, cache=False)
    value = of_model["rankme_audio"].value
    assert of_run["rankme_audio"].value == pytest.approx(value, rel=1e-4)
    with pytest.raises(InputError, match="give one, or give a run"):
        ra.probe(model)


def test_a_model_edited_by_a_function_leaves_no_store(
    model: ra.Model, sounds: ra.Dataset, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="edited by a function"):
        ra.extract(model.with_edit({"s3": lambda x: x}), sounds, tmp_path)
    with model.edited({"s3.b0.h0": ra.zero()}):
        run = ra.extract(model, sounds, tmp_path / "edited")
    assert run.store.model_info.name == "tiny + zero(s3.b0.h0)"
    assert not run.store.heads("s3.b0.attention")[:, 0].any()
    with pytest.raises(ra.ResidualAudioError, match="model"):
        ra.extract(model, sounds, tmp_path / "edited")


def test_results_show_themselves() -> None:
    score = Score("top1", 0.5, float("nan"), float("nan"), 4)
    result = Result("zero-shot", "<b>", "esc50", "fold 4", (score,))
    assert repr(score) == "Score top1 0.5, n 4"
    assert repr(result).startswith("Result zero-shot of <b> on esc50 (fold 4)\n  top1 0.5")
    assert "&lt;b&gt;" in result._repr_html_()
    assert "<b>" not in result._repr_html_()
    assert list(result.to_pandas()["score"]) == ["top1"]


def test_an_atlas_opens_in_the_browser(run: ra.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("webbrowser.open", asked.append)
    view = ra.atlas(run).open()
    assert asked == [view.page.resolve().as_uri()]
    assert view.page.is_file()
