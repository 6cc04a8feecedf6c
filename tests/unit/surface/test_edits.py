"""Edits are values; a model is edited for a call, a block or for good, and never any other one."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from families import FAMILIES, NO_DIRECT_PATH, family_model
from tiny_model import tiny_model

import residual_audio as ra
from residual_audio.embeddings.embedder import EmbeddingSettings
from residual_audio.embeddings.of_dataset import embed_clips
from residual_audio.errors import InputError, ModelError
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.reweight.gains import identity_gains
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.terms import apply_direct
from residual_audio.surface.model import EditLike, Model
from residual_audio.types import Gains

RATE = 8000
WAVES = list(np.random.default_rng(0).normal(size=(3, RATE)).astype(np.float32) / 10)


def embed(
    model: Model, edit: EditLike | None = None, waves: list[np.ndarray] = WAVES
) -> np.ndarray:
    return model.embed_audio(waves, sample_rate=RATE, edit=edit)


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Model:
    return family_model(request.param)


def test_identities(model: Model) -> None:
    plain = embed(model)
    head, site, mlp = (model.units(level)[1] for level in ("head", "attention", "mlp"))
    cache = model.run(WAVES, keep=[head, site, mlp], sample_rate=RATE)
    for edit in (
        {head: ra.scale(1.0), site: ra.scale(1.0)},
        {mlp: lambda x: x},
        ra.patch(cache),
        {head: ra.patch(cache)},
    ):
        np.testing.assert_allclose(embed(model, edit), plain, atol=1e-5)
    np.testing.assert_array_equal(embed(model), plain)


def test_zero_is_zero_and_a_mean_is_the_mean(model: Model) -> None:
    head, site = model.units("head")[2], model.units("attention")[0]
    zeroed = model.run(WAVES, keep=[head, site], edit={head: ra.zero()}, sample_rate=RATE)
    assert not zeroed[head].any()
    cache = model.run(WAVES, keep=[head, site], sample_rate=RATE)
    meant = model.run(WAVES, keep=[head, site], edit={site: ra.mean(cache)}, sample_rate=RATE)
    want = np.broadcast_to(cache[site].mean((0, 1)), cache[site].shape)
    np.testing.assert_allclose(meant[site], want, atol=1e-5)
    given = model.run(WAVES, keep=site, edit={site: ra.mean(want[0, 0])}, sample_rate=RATE)
    np.testing.assert_allclose(given[site], want, atol=1e-5)


def test_one_clip_patched_into_all_and_clip_by_clip(model: Model) -> None:
    head = model.units("head")[3]
    cache = model.run(WAVES, keep=head, sample_rate=RATE)
    one = model.run(WAVES, keep=head, edit=ra.patch(cache.clip(2)), sample_rate=RATE)
    np.testing.assert_allclose(one[head], cache[head][[2, 2, 2]], atol=1e-6)
    # the places of clips are known whatever runs together
    turned = WAVES[::-1]
    each = model.run(turned, keep=head, edit=ra.patch(cache), sample_rate=RATE, batch_size=2)
    np.testing.assert_allclose(each[head], cache[head], atol=1e-6)
    with pytest.raises(InputError, match="3 clips cannot be patched into 2"):
        embed(model, ra.patch(cache), WAVES[:2])


def test_stages_sets_and_the_output() -> None:
    model = tiny_model()
    by_hand = {name: ra.zero() for name in model.units("s2.*.attention") + model.units("s2.*.mlp")}
    np.testing.assert_array_equal(embed(model, {"s2": ra.zero()}), embed(model, by_hand))
    united = embed(model, {"mine=s0.b0.h0+s3.b0.h1": ra.scale(0.5)})
    apart = embed(model, {"s0.b0.h0": ra.scale(0.5), "s3.b0.h1": ra.scale(0.5)})
    np.testing.assert_array_equal(united, apart)
    cache = model.run(WAVES, keep="output", sample_rate=RATE)
    patched = embed(model, ra.patch(cache.clip(1)))
    np.testing.assert_allclose(patched, cache.embedding[[1, 1, 1]], atol=1e-6)


def test_what_makes_no_sense_is_refused() -> None:
    model = tiny_model()
    for edit, why in (
        ({"s9.b0.h0": ra.zero()}, "no unit"),
        ({"s2": ra.zero(), "s2.b0.mlp": ra.zero()}, "edited twice"),
        ({"s0.b0.h0": 3.0}, "is a float"),
        ({"s0.b0.h0": lambda x: x[:, :1]}, "keeps the shape"),
        ({"s0.b0.h0": ra.mean(np.zeros(3))}, "4 dimensions"),
        (["s0.b0.h0"], "mapping"),
        ({"s0.b0.h1": ra.patch(model.run(WAVES, keep="s0.b0.h0", sample_rate=RATE))}, "not kept"),
        (ra.patch(model.run(WAVES, keep="maps", sample_rate=RATE)), "nothing that can be patched"),
    ):
        with pytest.raises(InputError, match=why):
            embed(model, edit)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a number"):
        ra.scale(float("nan"))


def test_inside_the_block_in_this_thread_alone() -> None:
    model = tiny_model()
    plain, edit = embed(model), {"s3": ra.zero()}
    want = embed(model, edit)
    elsewhere: list[np.ndarray] = []
    with model.edited(edit) as edited:
        np.testing.assert_array_equal(embed(model), want)
        np.testing.assert_array_equal(embed(edited), want)
        assert model.name == "tiny + zero(s3)"
        assert model.sha256 == edited.sha256 != tiny_model().sha256
        other = threading.Thread(target=lambda: elsewhere.append(embed(model)))
        other.start()
        other.join()
        with model.edited({"s2": ra.zero()}):
            assert model.name == "tiny + zero(s3) + zero(s2)"
        np.testing.assert_array_equal(embed(model), want)
    np.testing.assert_array_equal(elsewhere[0], plain)
    np.testing.assert_array_equal(embed(model), plain)
    with pytest.raises(RuntimeError, match="stop"), model.edited(edit):
        raise RuntimeError("stop")
    assert model.name == "tiny"


def test_every_function_sees_the_edit_inside_the_block() -> None:
    """Not the verbs of the model alone: worker threads and caches of embeddings too."""
    model, data = tiny_model(), ra.load_dataset("synthetic", n_clips=12)
    how = EmbeddingSettings(cache=False)
    plain = embed_clips(model, data, how).vectors
    want = embed_clips(model.with_edit({"s3": ra.zero()}), data, how).vectors
    n_threads = torch.get_num_threads()
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            with model.edited({"s3": ra.zero()}):
                np.testing.assert_allclose(embed_clips(model, data, how).vectors, want, atol=1e-6)
            np.testing.assert_allclose(embed_clips(model, data, how).vectors, plain, atol=1e-6)
    finally:
        torch.set_num_threads(n_threads)


def test_what_is_asked_later_is_of_the_model_as_it_was() -> None:
    model = tiny_model()
    with model.edited({"s3.b0.h1": ra.zero()}):
        inside = model.run(WAVES, sample_rate=RATE)
    assert not inside.contributions()["s3.b0.h1"].any()
    outside = model.run(WAVES, sample_rate=RATE)
    with model.edited({"s3.b0.h1": ra.zero()}):
        assert outside.contributions()["s3.b0.h1"].any()


def test_edits_are_told_apart_by_name_and_digest() -> None:
    model = tiny_model()
    cache = model.run(WAVES, keep=["s3.b0.h0"], sample_rate=RATE)
    edits: list[EditLike] = [
        {"s3.b0.h0": ra.zero()},
        {"s3.b0.h1": ra.zero()},
        {"s3.b0.h0": ra.scale(0.5)},
        {"s3.b0.h0": ra.scale(0.25)},
        {"s3.b0.h0": ra.mean(cache)},
        ra.patch(cache.clip(0)),
        ra.patch(cache.clip(1)),
    ]
    digests = [model.with_edit(edit).sha256 for edit in edits]
    assert len({model.sha256, *digests}) == len(edits) + 1
    assert digests == [model.with_edit(edit).sha256 for edit in edits]
    # nobody knows what a function does: nothing of it is ever taken from a cache
    assert model.with_edit({"s3.b0.h0": lambda x: x}).sha256 == ""


def head_gains(model: Model, path: str, value: float | None) -> Gains:
    """Gains of all heads of the last stage, in axes of the three clips."""
    stage = max(site.stage for site in model.encoder.sites)
    names = [name for name in model.units("head") if name.startswith(f"s{stage}.b0.")]
    cache = model.run(WAVES, keep=names, sample_rate=RATE)
    parts = cache.contributions() if path == "direct" else None
    spectra = {
        name: fit_spectrum(
            (cache[name].mean(1) if parts is None else parts[name]).astype(np.float64)
        )
        for name in names
    }
    found = identity_gains(spectra, mean_gains=True, path=path)
    rng = np.random.default_rng(0)
    if value is None:
        for gains in found.gains.values():
            gains[:] = rng.uniform(0, 2, len(gains))
    return found


@pytest.mark.parametrize("path", ["network", "direct"])
def test_gains_on_both_paths(model: Model, path: str) -> None:
    if path == "direct" and model.family in NO_DIRECT_PATH:
        spectra = {"s3.b0.h0": fit_spectrum(np.random.default_rng(0).normal(size=(9, 64)))}
        gains = identity_gains(spectra, path="direct")
        with pytest.raises(ModelError, match="direct path"):
            embed(model, gains)
        return
    plain = embed(model)
    np.testing.assert_allclose(embed(model, head_gains(model, path, 1.0)), plain, atol=1e-5)
    gains = head_gains(model, path, None)
    found = model.run(WAVES, sample_rate=RATE, edit=gains)
    if path == "network":
        acting = NetworkGains(gains, model.encoder.sites)
        with torch.inference_mode():
            windows = torch.from_numpy(np.concatenate([model.windows(w) for w in WAVES]))
            encoded = model.encode(model.features(windows), edit=acting.edit())
        want = acting.output(encoded).latent.numpy()
    else:
        want = apply_direct(model.run(WAVES, sample_rate=RATE).contributions(), gains)
    np.testing.assert_allclose(found.latent, want, atol=1e-4)
    assert np.abs(found.latent - model.run(WAVES, sample_rate=RATE).latent).max() > 1e-5


def test_gains_of_another_model_are_refused() -> None:
    model = tiny_model()
    gains = head_gains(model, "network", None)
    about = {"model": {"name": "other", "sha256": "f" * 64}}
    with pytest.raises(ModelError, match="fitted on 'other'"):
        embed(model, Gains(gains.gains, gains.spectra, fitted_on=about))
    with pytest.raises(ModelError, match="another model"):
        embed(family_model("ast"), gains)


def test_an_edited_model_is_not_saved_as_if_it_were_not(tmp_path: object) -> None:
    for to in ("native", "hf", "laion"):
        with pytest.raises(ModelError):
            tiny_model().with_edit({"s3": ra.zero()}).save(f"{tmp_path}/{to}", to=to)  # type: ignore[arg-type]


def test_a_latent_that_is_no_sum_any_more_says_so() -> None:
    model = tiny_model().with_edit({"s3.b0.attention": ra.scale(0.5)})
    with pytest.raises(ModelError, match="no sum"):
        model.run(WAVES, sample_rate=RATE).contributions()
    assert model.with_edit({"s3.b0.h0": ra.zero()}).run(WAVES, sample_rate=RATE).latent.any()
