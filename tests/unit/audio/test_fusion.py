"""Fusion of long clips: four channels, no chance."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from residual_audio.audio import specs
from residual_audio.audio.frontend import LogMel
from residual_audio.audio.fusion_mel import FusionLogMel, fuse, fusion_starts
from residual_audio.errors import InputError


def noise(n: int) -> np.ndarray:
    return (0.1 * np.random.default_rng(n).standard_normal(n)).astype(np.float32)


@given(chunk=st.integers(1, 50), extra=st.integers(0, 100))
def test_parts_are_first_middle_and_last(chunk, extra):
    front, middle, back = fusion_starts(chunk + extra, chunk)
    assert (front, back) == (0, extra)
    assert abs((middle - front) - (back - middle)) <= 1


def test_channels():
    mel = torch.randn(40, 8)
    out = fuse(mel, 10)
    assert out.shape == (4, 10, 8)
    assert torch.equal(out[1], mel[:10])
    assert torch.equal(out[2], mel[15:25])
    assert torch.equal(out[3], mel[30:])
    # Shrunk four times without antialiasing: the mean of the two middle frames of each four.
    assert torch.allclose(out[0], (mel[1::4] + mel[2::4]) / 2, atol=1e-6)
    assert torch.equal(fuse(mel, 10, (3, 4, 5))[2], mel[4:14])


@pytest.mark.parametrize("starts", [(-1, 0, 0), (0, 0, 31)])
def test_parts_outside_are_refused(starts):
    with pytest.raises(InputError, match="do not lie within"):
        fuse(torch.zeros(40, 8), 10, starts)


def test_short_and_long_clips_together():
    spec = specs.HF_FUSION
    front_end = FusionLogMel(spec)
    clips = [noise(600_000), noise(100_000), noise(480_000), noise(480_100), noise(480_480)]
    features, longer = front_end(clips)
    assert features.shape == (5, 4, 1001, 64)
    assert longer.tolist() == [True, False, False, False, True]
    for i in (1, 2, 3):
        assert torch.equal(features[i, 0], features[i, 3])
    again, _ = front_end(clips[::-1])
    assert torch.equal(again.flip(0), features)
    assert torch.equal(front_end(clips[:1])[0][0], features[0])
    assert torch.equal(front_end(torch.from_numpy(clips[0][None]))[0][0], features[0])


def test_long_clips_as_transformers_except_for_chance(monkeypatch):
    from transformers import ClapFeatureExtractor

    extractor = ClapFeatureExtractor(frequency_min=50, truncation="fusion")
    wave = noise(700_000)
    total = LogMel(specs.HF_FUSION)(torch.from_numpy(wave[None]))[0]
    drawn = iter([7, 200, 400])
    monkeypatch.setattr(np.random, "choice", lambda _: next(drawn))
    theirs = extractor(wave, sampling_rate=48_000)["input_features"][0]
    ours = fuse(total, 1001, (7, 200, 400))
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-3)
