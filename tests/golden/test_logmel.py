"""Log-mels of every family against tensors made by the real upstream code, to 0.02 dB."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_cases import discover, family_of
from safetensors.numpy import load_file

from residual_audio.audio import specs
from residual_audio.audio.frontend import FrontEndSpec, LogMel
from residual_audio.audio.fusion_mel import FusionLogMel, fuse
from residual_audio.audio.windows import fit_windows

TOLERANCE_DB = 0.02
DB_PER_NEPER = 10 / np.log(10)

SPEC_OF_FAMILY = {
    "hf": specs.HF,
    "laion": specs.LAION,
    "laion_fusion": specs.HF_FUSION,  # its mels were made by transformers: not quantised
    "msclap2023": specs.MSCLAP,
    "mga": specs.MGA,
    "m2d": specs.M2D,
    "m2d_2024": specs.M2D_2024,
    "ast": specs.AST,
}


@pytest.fixture(
    params=discover(SPEC_OF_FAMILY.__contains__) or [None], ids=lambda p: p.name if p else "absent"
)
def folder(request) -> Path:
    if request.param is None:
        pytest.skip("the golden tensors 'shared/reference/golden' are not beside the project")
    return request.param


def read(folder: Path) -> tuple[FrontEndSpec, dict, dict[str, np.ndarray], list[np.ndarray]]:
    config = json.loads((folder / "config.json").read_text())
    io = load_file(folder / "io.safetensors")
    n_clips = sum(name.startswith("waveform.") for name in io)
    waves = [io[f"waveform.{i}"].astype(np.float32) / 32768 for i in range(n_clips)]
    return SPEC_OF_FAMILY[family_of(folder)], config, io, waves


def log_mel(spec: FrontEndSpec, wave: np.ndarray) -> np.ndarray:
    windows = fit_windows(wave, spec.n_samples, spec.short)
    return LogMel(spec)(torch.from_numpy(windows))[0].numpy()


def in_db(spec: FrontEndSpec, x: np.ndarray) -> np.ndarray:
    if spec.std is not None:
        x = x * spec.std + spec.mean
    return x if spec.log == "db" else x * DB_PER_NEPER


def assert_close(spec: FrontEndSpec, ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    worst = np.abs(in_db(spec, ours) - in_db(spec, theirs)).max()
    assert worst <= TOLERANCE_DB, f"log-mels differ by {worst:.4f} dB"


def test_spec_is_the_one_the_release_states(folder):
    spec, config, _, _ = read(folder)
    mel = config["mel"]
    assert config["sample_rate"] == spec.sample_rate_hz
    assert config["native_samples"] == spec.n_samples
    assert (mel["n_mels"], mel["fmin"], mel["fmax"]) == (spec.n_mels, spec.f_min_hz, spec.f_max_hz)
    assert mel["mel_scale"] == spec.mel_scale
    assert mel.get("mel_norm") == spec.mel_norm
    if "n_fft" in mel:
        assert (mel["n_fft"], mel["hop_length"]) == (spec.n_fft, spec.hop_length)
    assert mel.get("sr_used_for_filters", spec.sample_rate_hz) == (
        spec.filter_rate_hz or spec.sample_rate_hz
    )
    for frames in ("frames", "frames_native"):
        assert mel.get(frames, 0) in (0, spec.count_frames(spec.n_samples))


def test_log_mel(folder):
    family = family_of(folder)
    spec, _, io, waves = read(folder)
    if family == "laion_fusion":
        assert_close(spec, log_mel(spec, waves[0]), io["logmel_short"])
    elif family == "ast":
        for i, wave in enumerate(waves):
            theirs = io[f"logmel.{i}"]
            ours = log_mel(spec, wave)
            assert_close(spec, ours[: len(theirs)], theirs)
            np.testing.assert_allclose(ours[len(theirs) :], io["logmel_pad_value"][0], atol=1e-6)
    elif family.startswith("m2d"):
        # Upstream takes the log-mel of the whole clip and cuts it into chunks afterwards.
        whole = replace(spec, n_samples=max(len(wave) for wave in waves))
        for i, wave in enumerate(waves):
            assert_close(spec, log_mel(whole, wave).T, io[f"logmel.{i}"])
    else:
        for wave, theirs in zip(waves, io["logmel"], strict=True):
            assert_close(spec, log_mel(spec, wave), theirs)


def test_fusion_of_a_long_clip(folder):
    if family_of(folder) != "laion_fusion":
        pytest.skip("only for fusion")
    spec, _, io, waves = read(folder)
    whole = LogMel(spec)(torch.from_numpy(waves[1][None]))[0]
    theirs = io["mel_fusion_long"]
    ours = fuse(whole, theirs.shape[1], io["crop_start_frames"].tolist())
    assert_close(spec, ours.numpy(), theirs)
    features, longer = FusionLogMel(spec)(waves)
    assert longer.tolist() == io["longer"].astype(bool).tolist()
    # The whole clip, shrunk, is the channel without chance.
    assert_close(spec, features[1, 0].numpy(), theirs[0])
    assert_close(spec, features[0, 3].numpy(), io["logmel_short"])


def test_the_checkpoints_own_filters_are_the_specs(folder):
    spec, _, _, _ = read(folder)
    weights = load_file(folder / "weights.safetensors")
    stored = [value for name, value in weights.items() if name.endswith("melW")]
    if not stored:
        pytest.skip(f"the weights of '{folder.name}' hold no filter bank")
    if spec.fusion:
        # Fusion checkpoints still carry the bank of the unfused front-end, which they do not use.
        spec = specs.HF
    np.testing.assert_allclose(LogMel(spec).filters.numpy(), stored[0], atol=1e-7)
