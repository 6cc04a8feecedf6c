"""A run keeps what was asked for, and nothing else, on every kind of encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from families import FAMILIES, NO_DIRECT_PATH, family_model
from tiny_model import tiny_model

from residual_audio.errors import AudioError, InputError, ModelError
from residual_audio.surface.model import Model
from residual_audio.types import Site

RATE = 8000


def noises(n: int = 3, seed: int = 0, samples: int = RATE) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(n, samples)).astype(np.float32) / 10)


class Everything:
    points = frozenset({"raw", "out", "stream", "maps", "end", "scale"})

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], torch.Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: torch.Tensor) -> None:
        self.found[point, str(where)] = value


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Model:
    return family_model(request.param)


def test_values_are_those_of_the_pass(model: Model) -> None:
    waves = noises()
    head, site = model.units("head")[3], model.units("attention")[1]
    mlp = model.units("mlp")[0]
    cache = model.run(waves, keep=[head, site, mlp, "tokens", "s0.end"], sample_rate=RATE)
    assert set(cache.values) == {head, site, mlp, "tokens", "s0.end"}
    tap = Everything()
    with torch.inference_mode():
        windows = torch.from_numpy(np.concatenate([model.windows(w) for w in waves]))
        encoded = model.encode(model.features(windows), tap=tap)
    raw = tap.found["raw", f"{head.rsplit('.', 1)[0]}.attention"][:, :, int(head.split("h")[1])]
    for name, value in (
        (head, raw),
        (site, tap.found["out", site]),
        (mlp, tap.found["out", mlp]),
        ("s0.end", tap.found["end", "0"]),
        ("tokens", encoded.tokens),
    ):
        np.testing.assert_allclose(cache[name], value.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(cache.latent, encoded.latent.numpy(), atol=1e-5)
    embedded = model.embed_audio(waves, sample_rate=RATE)
    np.testing.assert_allclose(cache.embedding, embedded, atol=1e-5)


def test_maps_are_probabilities_of_every_block(model: Model) -> None:
    cache = model.run(noises(2), keep="maps", sample_rate=RATE)
    blocks = [name.removesuffix(".attention") for name in model.units("attention")]
    assert list(cache["maps"]) == blocks
    for block in blocks:
        np.testing.assert_allclose(cache.maps(block).sum(-1), 1.0, atol=1e-5)
        assert cache.maps(f"{block}.attention") is cache.maps(block)


def test_contributions_sum_to_the_latent(model: Model) -> None:
    waves = noises(3)
    if model.family in NO_DIRECT_PATH:
        with pytest.raises(ModelError, match="direct path"):
            model.run(waves, keep="contributions", sample_rate=RATE)
        return
    for keep in ("contributions", ()):  # in the run itself, and by a second pass
        cache = model.run(waves, keep=keep, sample_rate=RATE)
        parts = cache.contributions()
        np.testing.assert_allclose(parts.total(), cache.latent, atol=2e-5)
        assert parts is cache.contributions()
        one = cache.clip(1).contributions()
        np.testing.assert_allclose(one.total(), cache.latent[1:2], atol=2e-5)


def click(at: float) -> np.ndarray:
    wave = np.zeros(RATE, np.float32)
    start = int(at * RATE)
    wave[start : start + 200] = np.random.default_rng(0).normal(size=200)
    return wave


def tone(hertz: float) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(RATE) / RATE).astype(np.float32) / 4


def test_time_goes_forward(model: Model) -> None:
    """A click at 20% and at 70% of a clip moves the tokens of just that time."""
    waves = [np.full(RATE, 1e-5, np.float32), click(0.2), click(0.7)]
    grid = model.run(waves, keep="s0.b0.stream", sample_rate=RATE).time_frequency("s0.b0.stream")
    change = np.abs(grid[1:] - grid[:1]).sum((2, 3))
    at = change.argmax(1) / grid.shape[1]
    np.testing.assert_allclose(at, [0.2, 0.7], atol=0.1)


def test_frequency_goes_up(model: Model) -> None:
    waves = [np.full(RATE, 1e-5, np.float32), tone(200), tone(3500)]
    grid = model.run(waves, keep="s0.b0.stream", sample_rate=RATE).time_frequency("s0.b0.stream")
    if model.family in ("whisper", "pe-audio"):  # their tokens span all frequencies
        assert grid.shape[2] == 1
        return
    low, high = np.abs(grid[1:] - grid[:1]).sum((1, 3)).argmax(1)
    assert low < high


def test_tokens_and_the_end_of_the_last_stage_lie_alike(model: Model) -> None:
    """Final tokens have an order of their own; in time and frequency it is the same one."""
    last = max(site.stage for site in model.encoder.sites)
    cache = model.run(noises(2), keep=["tokens", f"s{last}.end"], sample_rate=RATE)
    end = torch.from_numpy(cache.time_frequency(f"s{last}.end"))
    if model.family == "whisper":  # neighbours are averaged on the way
        end = end.unflatten(1, (-1, 2)).mean(2)
    normed = model.encoder.norm(end)
    if model.family == "pe-audio":  # a matrix follows its norm
        normed = model.encoder.output(normed).detach()
    np.testing.assert_allclose(cache.time_frequency("tokens"), normed.numpy(), atol=1e-5)


def test_clips_of_different_lengths() -> None:
    model = family_model("m2d")
    waves = [noises()[0], np.concatenate(noises(2))]
    cache = model.run(waves, keep="s0.b1.h0", sample_rate=RATE)
    with pytest.raises(InputError, match="different lengths"):
        cache["s0.b1.h0"]
    both = [cache.clip(i)["s0.b1.h0"].shape[1] for i in range(2)]
    assert both == [13, 26]
    assert cache.clip(1).time_frequency("s0.b1.h0").shape == (1, 12, 2, 4)


def test_wildcards_points_and_published_names() -> None:
    model = tiny_model()
    cache = model.run(noises(1), keep=["s2.*.h0", "s2.*.maps", "L0_B1_H1"], sample_rate=RATE)
    kept = {"s2.b0.h0", "s2.b1.h0", "s2.b0.maps", "s2.b1.maps", "s0.b1.h1"}
    assert set(cache.values) == kept
    assert cache["L0_B1_H1"] is cache["s0.b1.h1"]
    assert "maps" in cache
    assert "s2.b0.h1" not in cache
    with pytest.raises(InputError, match=r"was not kept; kept: .*s2\.b0\.h0"):
        cache["s2.b0.h1"]
    with pytest.raises(InputError, match="points: stream, maps"):
        model.run(noises(1), keep="s9.b0.h0", sample_rate=RATE)
    with pytest.raises(InputError, match="fits no block"):
        model.run(noises(1), keep="s9.b0.maps", sample_rate=RATE)


def test_nothing_is_kept_that_was_not_asked_for() -> None:
    cache = tiny_model().run(noises(2), sample_rate=RATE)
    assert not cache.values
    assert "nothing kept" in repr(cache)
    assert cache.latent.shape == (2, 64)


def test_what_a_cache_says_of_itself() -> None:
    cache = tiny_model().run(noises(2), keep=["s0.b0.h0", "s3.*.attention"], sample_rate=RATE)
    shown = repr(cache)
    assert "2 clips through tiny" in shown
    assert "2 × 256 × 4" in shown
    assert "<table>" in cache._repr_html_()
    assert cache.n_bytes == cache["s0.b0.h0"].nbytes + cache["s3.b0.attention"].nbytes


def test_too_much_for_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("residual_audio.capture.kept_run.MAX_BYTES", 100_000)
    with pytest.raises(InputError, match="keep fewer units"):
        tiny_model().run(noises(8), keep="maps", sample_rate=RATE)


def test_files_and_waveforms_are_the_same_sound(tmp_path: Path) -> None:
    model = tiny_model()
    wave = np.sin(2 * np.pi * 300 * np.arange(44_100) / 44_100)
    whole = np.round(wave * 32768).clip(-32768, 32767).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", whole, 44_100, subtype="PCM_16")
    want = model.embed_audio([tmp_path / "a.wav"])
    np.testing.assert_array_equal(model.embed_audio([whole], sample_rate=44_100), want)
    floats = whole.astype(np.float64) / 32768
    np.testing.assert_allclose(model.embed_audio([floats], sample_rate=44_100), want, atol=1e-6)
    # taken at the wrong rate it would be another sound
    assert np.abs(model.embed_audio([whole], sample_rate=8000) - want).max() > 0.01


def test_a_waveform_without_a_rate_is_an_error() -> None:
    model = tiny_model()
    with pytest.raises(InputError, match="sample_rate="):
        model.embed_audio(noises(1))
    with pytest.raises(InputError, match="sample_rate="):
        model.run(noises(1), keep="maps")
    with pytest.raises(InputError, match="mono"):
        model.embed_audio([np.zeros((2, 8000))], sample_rate=RATE)
    with pytest.raises(InputError, match="list of files"):
        model.run("dog.wav")


def test_what_cannot_be_heard_is_skipped_and_said(tmp_path: Path) -> None:
    model = tiny_model()
    (tmp_path / "junk.wav").write_bytes(b"no sound at all")
    items = [noises(1)[0], tmp_path / "junk.wav", noises(2)[1]]
    with pytest.raises(AudioError, match=r"junk\.wav"):
        model.embed_audio(items, sample_rate=RATE)
    with pytest.warns(UserWarning, match=r"1 clips could not be heard: .*junk\.wav"):
        found = model.embed_audio(items, sample_rate=RATE, on_error="skip")
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()
    cache = model.run(items, keep="s0.b0.h0", sample_rate=RATE, on_error="skip")
    assert cache.clips == ("waveform 0", "waveform 2")
    assert list(cache.skipped) == [str(tmp_path / "junk.wav")]
    np.testing.assert_allclose(cache.embedding, found[[0, 2]], atol=1e-6)


def test_embedding_leaves_no_trace() -> None:
    model = tiny_model()
    want = model.embed_audio(noises(), sample_rate=RATE)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_array_equal(model.embed_audio(noises(), sample_rate=RATE), want)
        model.run(noises(), keep="maps", sample_rate=RATE)
        assert torch.is_autocast_enabled("cpu")
    with pytest.raises(InputError):
        model.embed_audio(noises())
    assert all(part.training for part in model.modules())
    assert state == (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], atol=0, rtol=0)
