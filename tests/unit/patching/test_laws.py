"""Laws of interchange, on a hierarchical encoder and on encoders of one stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.one_stage import one_stage_model
from tests.support.tiny_model import tiny_model

from residual_audio.direct.contributions import Captured, Contributions
from residual_audio.errors import InputError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import States
from residual_audio.patching.exchanges import Exchanges, Sounds, exchanges_of_sounds
from residual_audio.patching.interchange import ExchangeWay, interchange

TEXTS = [("a dog barks", "rain on a roof"), ("a bell", "a dog barks")]
DIRECT = ExchangeWay(path="direct")


def trained_like(model: AudioTextModel) -> AudioTextModel:
    """Weights large enough for units to matter."""
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            if parameter.ndim > 1:
                parameter.mul_(1.5)
    return model


@pytest.fixture(scope="module", params=["htsat", "whisper", "m2d"])
def model(request) -> AudioTextModel:
    if request.param == "htsat":
        return tiny_model()
    return trained_like(one_stage_model(request.param))


def waves(model: AudioTextModel, n: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    n_samples = model.spec.n_samples
    t = np.arange(n_samples) / model.sample_rate_hz
    return [
        (np.sin(2 * np.pi * rng.uniform(200, 1500) * t) * (t > rng.uniform(0, 0.5) * t[-1])
         + 0.1 * rng.normal(size=n_samples)).astype(np.float32)
        for _ in range(n)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def given(model) -> Exchanges:
    return exchanges_of_sounds(
        model, Sounds(waves(model, 2, 0), waves(model, 2, 1), model.sample_rate_hz), TEXTS
    )


def test_a_clip_into_itself_changes_nothing(model):
    sounds = waves(model, 2, 3)
    same = exchanges_of_sounds(model, Sounds(sounds, sounds, model.sample_rate_hz), TEXTS)
    units = ["head", "attention", "mlp", "stage", "stream"]
    for way in (ExchangeWay(), ExchangeWay("attribution"), DIRECT):
        found = interchange(same, units, way)
        np.testing.assert_allclose(found.changes, 0, atol=1e-6)
        assert not found.used.any()
        assert found.left_out() == ["0", "1"]
        assert np.isnan(found.effects).all()


def test_every_head_of_a_site_is_the_site(given):
    site = next(s for s in given.model.encoder.sites if s.block == 1)
    heads = "all=" + "+".join(str(head) for head in site.heads)
    for way, exact in ((ExchangeWay(), 2e-6), (ExchangeWay("attribution"), 2e-6)):
        found = interchange(given, [heads, str(site)], way)
        np.testing.assert_allclose(found.patched[0], found.patched[1], atol=exact)
        assert abs(found.changes).max() > 1e-4


def test_all_before_a_block_is_the_other_clips_state(given):
    encoder = given.model.encoder
    blocks = list(dict.fromkeys((s.stage, s.block) for s in encoder.sites))
    block = blocks[2]
    before = [str(s) for s in encoder.sites if (s.stage, s.block) < block]
    name = f"s{block[0]}.b{block[1]}.stream"
    found = interchange(given, ["before=" + "+".join(["embedding", *before]), name])
    item = given.items[0]
    states = States(encoder.sites, {2})
    with torch.no_grad():
        encoder.encode(given.features.take([item.clean]), tap=states)
        joint = given.model.joint(encoder.encode(None, start=states.states[2]))
        clean = given.model.joint(encoder.encode(given.features.take([item.clean])))
    want = item.measure(joint, clean[0])
    np.testing.assert_allclose(found.patched[:, 0], float(want), atol=3e-6)
    # and nothing of the corrupt clip is left: the effect is one
    np.testing.assert_allclose(found.effects[:, 0], 1, atol=1e-3)


def test_the_output_is_the_clean_clip(given):
    for way in (ExchangeWay(), DIRECT):
        found = interchange(given, "output", way)
        np.testing.assert_allclose(found.patched[0], found.clean, atol=2e-6)


def test_many_at_once_equals_one_at_a_time(given):
    units = ["head", "s0.b0.stream", "s0.b1.mlp"]
    together = interchange(given, units)
    for i, target in list(enumerate(together.targets))[::5]:
        alone = interchange(given.part([1]), [target])
        np.testing.assert_allclose(alone.patched[0], together.patched[i, 1:2], atol=2e-6)


def test_two_halves_of_the_time_are_all_tokens_of_a_stream_with_a_time(given):
    duration = given.durations_s[0]
    whole = interchange(given, "s0.b1.stream", ExchangeWay(between=(0, duration)))
    half = interchange(given, "s0.b1.stream", ExchangeWay(between=(0, duration / 2)))
    every = interchange(given, "s0.b1.stream")
    assert abs(half.patched - whole.patched).max() > 1e-5
    n_special = getattr(given.model.encoder.config, "n_special", 0)
    if n_special == 0:
        np.testing.assert_allclose(whole.patched, every.patched, atol=2e-6)
    for way in (ExchangeWay("attribution"), ExchangeWay("exact", "direct")):
        ends = [(0, duration / 2), (duration / 2, duration), (0, duration)]
        first, second, both = (
            interchange(given, "s0.b1.h1", ExchangeWay(way.method, way.path, between))
            for between in ends
        )
        if way.method == "attribution":  # linear in the tokens
            total = first.changes + second.changes
            np.testing.assert_allclose(total, both.changes, atol=2e-6)
    with pytest.raises(InputError, match="no token of stage"):
        interchange(given, "s0.b1.h1", ExchangeWay(between=(duration + 1, duration + 2)))


def test_attribution_is_the_derivative_along_the_line(given):
    model = given.model
    encoder = model.encoder
    site = [s for s in encoder.sites if s.kind == "attention"][1]
    names = [f"s{site.stage}.b{site.block}.h1", f"s{site.stage}.b{site.block}.mlp"]
    found = interchange(given, names, ExchangeWay("attribution"))
    mlp = next(s for s in encoder.sites if str(s) == names[1])
    item = given.items[0]
    values: dict = {}

    class Keep:
        points = frozenset({"raw", "out"})

        def __call__(self, point, where, value):
            values.setdefault((str(where), point), []).append(value)

    double = torch.float64
    encoder.to(double), model.head.to(double)
    try:
        with torch.no_grad():
            clips = [given.features.take([r]).to(double) for r in (item.clean, item.corrupt)]
            joints = [model.joint(encoder.encode(clip, tap=Keep())) for clip in clips]
            for i, (where, point) in enumerate([(site, "raw"), (mlp, "out")]):
                clean, corrupt = values[str(where), point]

                def at(eps, where=where, point=point, clean=clean, corrupt=corrupt):
                    step = clean - corrupt
                    if point == "raw":
                        step = (
                            step
                            * torch.nn.functional.one_hot(torch.tensor(1), site.n_heads)[:, None]
                        )
                    edit = {(where, point): lambda x: x + eps * step}
                    joint = model.joint(encoder.encode(clips[1], edit=edit))
                    return float(item.measure(joint, joints[0][0]))

                slope = (at(1e-4) - at(-1e-4)) / 2e-4
                assert found.changes[i, 0] == pytest.approx(slope, abs=2e-5, rel=2e-3)
                assert abs(slope) > 1e-5
    finally:
        encoder.float(), model.head.float()


def test_direct_is_arithmetic_of_the_latent(given):
    from residual_audio.capture.capture_settings import CaptureSettings, SamplePlan
    from residual_audio.capture.operators import encoder_operators
    from residual_audio.capture.recorder import Recorder

    model = given.model
    recorder = Recorder(model.encoder, SamplePlan(4, CaptureSettings.of("heads,direct")))
    arrays = recorder.run(given.features.take([0, 1, 2, 3]))
    source = Captured(model.encoder.sites, arrays, encoder_operators(model.encoder, ("direct",)))
    parts = Contributions(source)
    site = [s for s in model.encoder.sites if s.kind == "attention"][-1]
    names = [str(site.heads[0]), str(site), f"s{site.stage}.b{site.block}.mlp", f"s{site.stage}"]
    found = interchange(given, [*names, "embedding"], DIRECT)
    for i, name in enumerate([*names, "embedding"]):
        of = parts.of(name)
        for column, item in enumerate(given.items):
            latent = parts.latent[item.corrupt] + of[item.clean] - of[item.corrupt]
            with torch.no_grad():
                joint = model.head.from_latent(torch.from_numpy(latent)[None].float())
                whole = model.joint(model.encode(given.features.take([item.clean])))
            want = float(item.measure(joint, whole[0]))
            assert found.patched[i, column] == pytest.approx(want, abs=3e-6)


def test_attribution_refuses_what_has_no_slope_and_direct_has_no_attribution(given):
    with pytest.raises(InputError, match="exchange it exactly"):
        interchange(given, "output", ExchangeWay("attribution"))
    with pytest.raises(InputError, match="'attribution' with path 'direct'"):
        ExchangeWay("attribution", "direct")
