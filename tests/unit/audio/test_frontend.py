"""The log-mel front-end against transformers, against plain float64 numpy, and against itself."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from residual_audio.audio import specs
from residual_audio.audio.filters import hz_to_mel, mel_filters, mel_to_hz
from residual_audio.audio.frontend import FrontEndSpec, LogMel
from residual_audio.audio.windows import fit_windows
from residual_audio.errors import InputError

SPECS = {
    name: getattr(specs, name)
    for name in (
        "HF",
        "LAION",
        "HF_FUSION",
        "LAION_FUSION",
        "MSCLAP",
        "MGA",
        "M2D",
        "M2D_2024",
        "AST",
        "WHISPER",
        "NANO",
    )
}


def clip(rate_hz: int, n: int, seed: int = 0) -> np.ndarray:
    """A tone, a decaying knock and noise: loud and very quiet bands side by side."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) / rate_hz
    tone = 0.4 * np.sin(2 * np.pi * rng.uniform(150, 900) * t)
    knock = rng.standard_normal(n) * np.exp(-30 * (t % 0.7))
    return (tone + 0.1 * knock + 1e-5 * rng.standard_normal(n)).astype(np.float32)


def log_mel(spec: FrontEndSpec, waves: np.ndarray) -> np.ndarray:
    return LogMel(spec)(torch.from_numpy(np.atleast_2d(waves))).numpy()


# --- against transformers -------------------------------------------------------------------


@pytest.mark.parametrize("truncation", ["rand_trunc", "fusion"])
@pytest.mark.parametrize("seconds", [0.3, 3.7, 10.0])
def test_clap_extractor(truncation, seconds):
    from transformers import ClapFeatureExtractor

    spec = specs.HF if truncation == "rand_trunc" else specs.HF_FUSION
    extractor = ClapFeatureExtractor(frequency_min=50, truncation=truncation)
    wave = clip(48_000, int(seconds * 48_000))
    theirs = extractor(wave, sampling_rate=48_000)["input_features"][0][0]
    ours = log_mel(spec, fit_windows(wave, spec.n_samples, spec.short))[0]
    assert ours.shape == theirs.shape == (1001, 64)
    np.testing.assert_allclose(ours, theirs, atol=0.004)


def test_noise_equals_the_clap_extractor_to_1e_5():
    from transformers import ClapFeatureExtractor

    extractor = ClapFeatureExtractor(frequency_min=50, truncation="rand_trunc")
    wave = (0.1 * np.random.default_rng(0).standard_normal(480_000)).astype(np.float32)
    theirs = extractor(wave, sampling_rate=48_000)["input_features"][0][0]
    np.testing.assert_allclose(log_mel(specs.HF, wave)[0], theirs, rtol=0, atol=5e-5)


@pytest.mark.parametrize("frequency", [110.0, 440.0, 3000.0])
@pytest.mark.parametrize("spec", [specs.HF, specs.HF_FUSION])
def test_pure_tones_stay_exact_far_below_their_peak(frequency, spec):
    # In float32 alone the quiet bins of the second spec are off by more than 1 dB.
    wave = (0.5 * np.sin(2 * np.pi * frequency * np.arange(96_000) / 48_000)).astype(np.float32)
    np.testing.assert_allclose(log_mel(spec, wave)[0], reference_db(spec, wave), atol=0.004)


def reference_db(spec: FrontEndSpec, wave: np.ndarray) -> np.ndarray:
    """The definition, frame by frame in float64."""
    side = spec.n_fft // 2
    padded = np.pad(wave.astype(np.float64), side, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(spec.n_fft) / spec.n_fft)
    starts = range(0, len(padded) - spec.n_fft + 1, spec.hop_length)
    frames = np.stack([padded[s : s + spec.n_fft] * window for s in starts])
    bank = mel_filters(
        spec.n_fft,
        spec.n_mels,
        spec.f_min_hz,
        spec.f_max_hz,
        spec.filter_rate_hz or spec.sample_rate_hz,
        spec.mel_scale,
        spec.mel_norm,
    )
    power = np.abs(np.fft.rfft(frames)) ** 2 @ bank
    return 10 * np.log10(np.maximum(power, 1e-10))


@pytest.mark.parametrize("name", ["MSCLAP", "MGA", "NANO", "HF"])
def test_the_definition_in_float64(name):
    spec = SPECS[name]
    wave = clip(spec.sample_rate_hz, 2 * spec.sample_rate_hz)
    np.testing.assert_allclose(log_mel(spec, wave)[0], reference_db(spec, wave), atol=0.004)


@pytest.mark.parametrize("seconds", [0.5, 3.7, 12.0])
def test_ast_extractor(seconds):
    from transformers import ASTFeatureExtractor

    wave = clip(16_000, int(seconds * 16_000))
    theirs = ASTFeatureExtractor()(wave, sampling_rate=16_000)["input_values"][0]
    kept = fit_windows(wave, specs.AST.n_samples, specs.AST.short)
    ours = log_mel(specs.AST, kept)[0]
    assert ours.shape == (1024, 128)
    np.testing.assert_allclose(ours, theirs, atol=5e-4)


@pytest.mark.parametrize("n_mels", [80, 128])
def test_whisper_extractor(n_mels):
    from transformers import WhisperFeatureExtractor

    spec = replace(specs.WHISPER, n_mels=n_mels)
    wave = clip(16_000, 5 * 16_000)
    theirs = WhisperFeatureExtractor(feature_size=n_mels)(wave, sampling_rate=16_000)
    ours = log_mel(spec, fit_windows(wave, spec.n_samples, spec.short))[0]
    assert ours.shape == (3000, n_mels)
    np.testing.assert_allclose(ours.T, theirs["input_features"][0], atol=1e-4)


@pytest.mark.parametrize("scale", ["slaney", "htk", "kaldi"])
@pytest.mark.parametrize("norm", ["slaney", None])
def test_filters_equal_transformers(scale, norm):
    from transformers.audio_utils import mel_filter_bank

    if scale == "kaldi" and norm:
        pytest.skip("the kaldi scale is never normalised by width in Hz")
    theirs = mel_filter_bank(513, 64, 50.0, 14_000.0, 48_000, norm, scale, scale == "kaldi")
    np.testing.assert_allclose(
        mel_filters(1024, 64, 50.0, 14_000.0, 48_000, scale, norm), theirs, atol=1e-12
    )
    f = np.linspace(0, 20_000, 100)
    np.testing.assert_allclose(mel_to_hz(hz_to_mel(f, scale), scale), f, atol=1e-8)


# --- laws -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_a_clip_does_not_depend_on_its_batch(name):
    spec = SPECS[name]
    n = min(spec.n_samples, 2 * spec.sample_rate_hz)
    waves = np.stack([clip(spec.sample_rate_hz, n, seed) for seed in range(5)])
    module = LogMel(spec)
    batch = module(torch.from_numpy(waves))
    assert batch.dtype == torch.float32
    assert batch.shape == (5, spec.count_frames(n), spec.n_mels)
    for i in range(5):
        assert torch.equal(module(torch.from_numpy(waves[i : i + 1]))[0], batch[i])
    assert torch.equal(module(torch.from_numpy(waves[::-1].copy())).flip(0), batch)


def test_nor_on_the_number_of_threads():
    waves = torch.from_numpy(np.stack([clip(48_000, 480_000, seed) for seed in range(3)]))
    module, before = LogMel(specs.HF), torch.get_num_threads()
    try:
        results = []
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            results.append(module(waves))
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_threads_respect_inference_mode():
    waves = torch.from_numpy(clip(32_000, 32_000))[None].repeat(3, 1)
    with torch.inference_mode():
        inside = LogMel(specs.NANO)(waves)
    assert inside.is_inference()
    assert not LogMel(specs.NANO)(waves.requires_grad_()).requires_grad
    assert torch.equal(inside, LogMel(specs.NANO)(waves))


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("n", [1, 2, 399, 400, 513, 1025])
def test_any_length_gives_finite_frames(name, n):
    spec = SPECS[name]
    out = log_mel(spec, clip(spec.sample_rate_hz, n))
    assert out.shape == (1, spec.count_frames(n), spec.n_mels)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("name", SPECS)
def test_silence_is_the_floor(name):
    spec = SPECS[name]
    out = log_mel(spec, np.zeros(min(spec.n_samples, 32_000), dtype=np.float32))
    floors = {"db": -100.0, "ln-add": np.log(spec.log_eps), "log10-whisper": (-10 + 4) / 4}
    if name == "AST":
        sound = (np.log(spec.log_eps) - spec.mean) / spec.std
        n_sound = spec.count_frames(32_000, pad=False)
        np.testing.assert_allclose(out[0, :n_sound], sound, rtol=1e-5)
        np.testing.assert_allclose(out[0, n_sound:], -spec.mean / spec.std, rtol=1e-5)
    else:
        np.testing.assert_allclose(out, floors[spec.log], rtol=1e-5)


def test_a_gain_adds_its_decibels():
    wave = (0.05 * np.random.default_rng(0).standard_normal(48_000)).astype(np.float32)
    louder = log_mel(specs.HF, 4 * wave) - log_mel(specs.HF, wave)
    np.testing.assert_allclose(louder, 20 * np.log10(4), atol=1e-4)


def test_an_empty_batch():
    assert LogMel(specs.NANO)(torch.zeros(0, 160_000)).shape == (0, 251, 64)


def test_quantisation_is_laions_round_trip():
    wave = np.concatenate([clip(48_000, 48_000), [-2.0, 2.0]]).astype(np.float32)
    as_int16 = (np.clip(wave, -1, 1) * 32767.0).astype(np.int16)
    by_hand = (as_int16 / 32767.0).astype(np.float32)
    np.testing.assert_array_equal(log_mel(specs.LAION, wave), log_mel(specs.HF, by_hand))
    assert not np.array_equal(log_mel(specs.LAION, wave), log_mel(specs.HF, wave))


def test_filters_of_a_checkpoint_win():
    wave = torch.from_numpy(clip(44_100, 44_100))[None]
    own = LogMel(specs.MSCLAP)
    bank = own.filters.numpy() * 10
    assert torch.allclose(LogMel(specs.MSCLAP, bank)(wave), own(wave) + 10, atol=1e-3)
    narrow = np.zeros((513, 64), dtype=np.float32)
    narrow[100] = 1.0
    assert LogMel(specs.MSCLAP, narrow)(wave).std(dim=-1).max() == 0
    reloaded = LogMel(specs.MSCLAP)
    reloaded.load_state_dict({"filters": torch.from_numpy(bank)})
    assert torch.equal(reloaded(wave), LogMel(specs.MSCLAP, bank)(wave))
    with pytest.raises(InputError, match=r"\(64, 513\)"):
        LogMel(specs.MSCLAP, bank.T)


def test_kaldi_window_inside_a_longer_centred_frame():
    spec = FrontEndSpec(16_000, 16_000, 512, 160, 40, 20.0, 8000.0, win_length=400)
    wave = clip(16_000, 16_000)
    window = torch.hann_window(400)
    theirs = torch.stft(torch.from_numpy(wave), 512, 160, 400, window, return_complex=True)
    power = (
        theirs.abs().square().T @ torch.from_numpy(mel_filters(512, 40, 20, 8000, 16_000)).float()
    )
    expected = 10 * power.clamp_min(1e-10).log10()
    np.testing.assert_allclose(log_mel(spec, wave)[0], expected.numpy(), atol=0.05)


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_survives_json(name):
    spec = SPECS[name]
    assert FrontEndSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_specs_that_make_no_sense():
    with pytest.raises(InputError, match="unknown settings colour"):
        FrontEndSpec.from_dict({**specs.HF.to_dict(), "colour": 1})
    with pytest.raises(InputError, match="hop_length"):
        replace(specs.HF, hop_length=0)
    with pytest.raises(InputError, match="win_length"):
        replace(specs.HF, win_length=2048)
    with pytest.raises(InputError, match="mean and std"):
        replace(specs.HF, mean=1.0)
    with pytest.raises(InputError, match="f_max"):
        LogMel(replace(specs.HF, f_max_hz=30_000.0))
    with pytest.raises(InputError, match="clip, sample"):
        LogMel(specs.HF)(torch.zeros(480_000))


def test_filters_that_change_are_seen():
    """What was prepared for the old filters is not used for new ones."""
    front_end = LogMel(specs.HF)
    waves = torch.randn(2, 48_000, generator=torch.Generator().manual_seed(0))
    before = front_end(waves)
    front_end.load_state_dict({"filters": 10 * front_end.filters})
    torch.testing.assert_close(front_end(waves), before + 10.0, atol=1e-4, rtol=0)
    front_end.filters = front_end.filters / 10
    torch.testing.assert_close(front_end(waves), before, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log", "log2"),
        ("window", "hamming"),
        ("mel_scale", 5),
        ("mel_norm", "area"),
        ("short", "\x1b[2J"),
        ("center", 1),
        ("n_mels", 64.0),
        ("n_frames", "x"),
        ("log_eps", -1),
        ("log_eps", float("nan")),
        ("preemphasis", 1e308),
        ("std", 0.0),
        ("f_max_hz", 0.0),
    ],
)
def test_settings_that_are_none_are_refused_instead_of_guessed(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"front-end: ({name}|mean)"):
        FrontEndSpec.from_dict({**specs.NANO.to_dict(), "mean": 0.0, "std": 1.0, name: value})
