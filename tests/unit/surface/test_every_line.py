"""What a researcher types, line by line, in one sitting: each runs and gives what it says."""

from __future__ import annotations

from pathlib import Path

import fake_releases
import numpy as np
import pytest
import soundfile

import residual_audio as ra


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two recordings and a small release of a data set under its real name."""
    folder = tmp_path_factory.mktemp("sitting")
    fake_releases.esc50(folder / "ESC-50")
    rng = np.random.default_rng(0)
    for path in sorted((folder / "ESC-50").rglob("*.wav")):
        soundfile.write(path, rng.normal(0, 0.1, 16_000), 8_000)
    for name in ("dog.wav", "rain.wav"):
        soundfile.write(folder / name, rng.normal(0, 0.1, 16_000), 8_000)
    return folder


def test_looking_inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    files = ["dog.wav", "rain.wav"]
    model = ra.load_model("nano")
    assert model.embed_audio(["dog.wav"]).shape == model.embed_text(["a dog"]).shape == (1, 256)

    cache = model.run(files, keep=["s2.b5.h11", "s3.*.attention", "maps"])
    n, tokens, width = cache["s2.b5.h11"].shape
    assert (n, width) == (2, 12)
    time, frequency = cache.time_frequency("s2.b5.h11").shape[1:3]
    assert time * frequency == tokens
    assert {"s3.b0.attention", "s3.b1.attention"} <= set(cache.units)
    assert cache.latent.shape[0] == cache.embedding.shape[0] == 2
    np.testing.assert_allclose(cache.contributions().total(), cache.latent, atol=1e-4)

    plain = model.embed_audio(files)
    without = model.embed_audio(files, edit={"s2.b5.h11": ra.zero()})
    assert 0 < np.abs(without - plain).max() < 0.5
    with model.edited({"s3.b0.attention": ra.patch(cache.clip(0))}):
        patched = model.embed_audio(files)
    np.testing.assert_allclose(patched[0], plain[0], atol=1e-5)
    assert np.abs(patched[1] - plain[1]).max() > 1e-4
    np.testing.assert_array_equal(model.embed_audio(files), plain)
    found = ra.patching(
        model, clean="dog.wav", corrupt="rain.wav", units="s*.*.h*", method="attribution"
    )
    assert len(found) == 184
    assert {"effect", "effect_low", "effect_high"} <= set(found.columns)


def test_from_a_run_to_gains_and_the_atlas(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    model = ra.load_model("nano")
    run = ra.extract(model, "esc50", "runs/esc50", root="ESC-50")
    assert len(run) == 8
    assert len(ra.analyse(run).heads.top("fisher_trace", 10)) == 10
    assert ra.ablate(run, "s2.b5.h11", model=model)["unit"].tolist() == ["s2.b5.h11"]
    fitted = ra.adapt(run, ra.ResiDual(stages=(2, 3)), model=model, n_folds=2)
    assert (fitted.score.n, fitted.score.chance) == (8, 0.5)
    with pytest.warns(match="no score on held-out clips"):
        score = ra.evaluate(model, "esc50", root="ESC-50", gains=fitted.gains)["top1"]
    assert 0 <= score.low <= score.value <= score.high <= 1
    assert ra.atlas(run).open().page.is_file()
    assert opened[0].startswith("file:")
