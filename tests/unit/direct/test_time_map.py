"""Time maps: contributions sum to the score, and are found where the direct path reads them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.one_stage import one_stage_model
from tests.support.tiny_model import tiny_model

import residual_audio as ra
from residual_audio.capture.capture_settings import CaptureSettings, SamplePlan
from residual_audio.capture.operators import encoder_operators
from residual_audio.capture.recorder import Recorder
from residual_audio.direct.contributions import Captured, Contributions
from residual_audio.direct.time_map import spread_evenly, tangent
from residual_audio.direct.time_totals import StageSums, totals_over_time
from residual_audio.direct.token_path import TokenPath
from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel

TEXT = "a dog barks"


def a_model(kind: str) -> AudioTextModel:
    return tiny_model() if kind == "htsat" else one_stage_model(kind)


def a_sound(model: AudioTextModel) -> np.ndarray:
    t = np.arange(model.spec.n_samples) / model.sample_rate_hz
    rng = np.random.default_rng(0)
    return np.sin(2000 * t) * (t > t[-1] / 2) + 0.05 * rng.normal(size=len(t))


@pytest.mark.parametrize("kind", ["htsat", "whisper", "m2d"])
def test_contributions_sum_to_the_score_and_each_unit_to_its_part_of_the_latent(kind):
    model = a_model(kind)
    wave = a_sound(model)
    found = ra.time_map(model, wave, TEXT, sample_rate=model.sample_rate_hz)
    assert found.total.sum() + found.rest == pytest.approx(found.score, abs=1e-6)
    windows = torch.from_numpy(model.windows(wave.astype(np.float32)))
    features = model.features(windows)
    arrays = Recorder(model.encoder, SamplePlan(1, CaptureSettings.of("heads,direct"))).run(
        features
    )
    source = Captured(model.encoder.sites, arrays, encoder_operators(model.encoder, ("direct",)))
    parts = Contributions(source)
    vector = torch.from_numpy(model.embed_text([TEXT])[0])
    score, slope = tangent(model, torch.from_numpy(parts.latent), vector)
    with torch.no_grad():
        joint = model.joint(model.encode(features))
    assert score == pytest.approx(float(torch.cosine_similarity(joint, vector[None])), abs=1e-6)
    names = [name for name in parts if name != "constant"]
    assert set(names) <= set(found.parts)
    for name in names:
        want = float(parts[name][0] @ slope.numpy())
        assert found.parts[name].sum() == pytest.approx(want, abs=3e-6), name
    # for a ReLU head the tangent is exact: what has no time is the biases after the last stage
    constants = parts.constants()
    head = model.head
    with torch.no_grad():
        latent = torch.from_numpy(parts.latent)
        on = (head.linear1(latent) > 0).float()
        bias = head.linear2(on * head.linear1.bias) @ vector / joint.norm()
    want = float(bias) + float(constants["final"][0] @ slope.numpy())
    assert found.rest == pytest.approx(want, abs=3e-6)


@pytest.mark.parametrize("kind", ["htsat", "whisper"])
def test_totals_of_several_texts_at_once_are_those_of_the_maps(kind):
    model = a_model(kind)
    texts = [TEXT, "rain on a roof"]
    waves = np.stack([a_sound(model), a_sound(model)[::-1]]).astype(np.float32)
    with torch.no_grad():
        tap = StageSums(model.encoder.sites[0])
        latent = model.encode(model.features(torch.from_numpy(waves)), tap=tap).latent
    for i, wave in enumerate(waves):
        slopes = [
            tangent(model, latent[i : i + 1], torch.from_numpy(v))[1]
            for v in model.embed_text(texts)
        ]
        with torch.no_grad():
            found = totals_over_time(
                TokenPath(model.encoder), model.encoder, tap.of_clip(i), torch.stack(slopes)
            )
        for text, total in zip(texts, found, strict=True):
            one = ra.time_map(model, wave, text, sample_rate=model.sample_rate_hz)
            np.testing.assert_allclose(total, one.total, atol=1e-6)


def test_time_ranges_share_out_the_total():
    model = tiny_model()
    found = ra.time_map(model, a_sound(model), TEXT, sample_rate=8000)
    assert found.duration_s == 1.0
    halves = found.between(0, 0.5) + found.between(0.5, 1.0)
    assert halves == pytest.approx(found.total.sum(), abs=1e-6)
    assert [len(v) for v in found.stages.values()] == sorted(
        (len(v) for v in found.stages.values()), reverse=True
    )
    np.testing.assert_allclose(spread_evenly(np.array([2.0, 4.0]), 4), [1, 1, 2, 2])
    assert found.mel.shape[1] == 16


def test_a_latent_of_cls_tokens_has_no_map_over_time():
    model = one_stage_model("ast")
    with pytest.raises(ModelError, match="no time"):
        ra.time_map(model, a_sound(model), TEXT, sample_rate=model.sample_rate_hz)
