"""Gains: identity, composition, folding, gradients and files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tiny_model import Bare, bare_features, bare_model
from torch import Tensor

from residual_audio.errors import InputError, ModelError
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.models.joint import ResidualMLP
from residual_audio.reweight.fold import fold
from residual_audio.reweight.gain_files import load_gains, save_gains, spectra_path
from residual_audio.reweight.gains import (
    affine,
    affine_of,
    blend,
    check_fits,
    check_gains,
    coarse,
    identity_gains,
    moved,
)
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.rules import Ground, apply_rule
from residual_audio.types import Gains, Spectrum, parse_unit

LATENT = 64


@dataclass
class TinyModel(Bare):
    def embed(self, features: Tensor, gains: NetworkGains | None = None) -> Tensor:
        if gains is None:
            with torch.no_grad():
                return self.joint(self.encoder.encode(features))
        return self.joint(gains.output(self.encoder.encode(features, edit=gains.edit())))


@pytest.fixture
def model() -> TinyModel:
    bare = bare_model()
    return TinyModel(bare.encoder, bare.head)


@pytest.fixture(scope="module")
def features() -> Tensor:
    return bare_features(3)


def make_gains(
    model: TinyModel,
    units: Sequence[str],
    *,
    k: int | None = None,
    seed: int = 0,
    keep_mean: bool = True,
    low: float = 0.2,
    means: bool = False,
) -> Gains:
    rng = np.random.default_rng(seed)
    spectra = {}
    for unit in units:
        d = parse_unit(unit, model.encoder.sites).width or LATENT
        full = fit_spectrum(rng.normal(size=(4 * d, d)) + rng.normal(size=d))
        spectra[unit] = Spectrum(full.mean, full.basis[:k], full.eigenvalues[:k], full.n)
    gains = {u: rng.uniform(low, 2.0, size=len(s.basis)) for u, s in spectra.items()}
    moved = {u: float(rng.uniform(low, 2.0)) for u in spectra} if means else {}
    return Gains(gains, spectra, keep_mean=keep_mean, means=moved)


ALL_HEADS = [
    f"s{s}.b{b}.h{h}" for s, n in enumerate((1, 2, 4, 8)) for b in (0, 1) for h in range(n)
]
UNITS = [
    ALL_HEADS,
    ["s2.b1.h1", "s3.b0.h2"],
    ["s1.b0.attention", "s2.b1.attention"],
    ["s0", "s3"],
    ["output"],
    ["s2.b0.h0", "s2.b0.attention", "s2", "output"],
    ["s1.b1.mlp", "s3.b1.mlp", "s1.b1.h0"],
]


@pytest.mark.parametrize("units", UNITS, ids=lambda u: "+".join(u[:3]))
def test_gains_of_one_are_the_identity(model, features, units):
    gains = identity_gains(make_gains(model, units).spectra)
    with torch.no_grad():
        same = model.embed(features, NetworkGains(gains, model.encoder.sites))
    torch.testing.assert_close(same, model.embed(features), atol=1e-6, rtol=0)


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("keep_mean", [True, False])
@pytest.mark.parametrize("units", UNITS, ids=lambda u: "+".join(u[:3]))
def test_folding_equals_editing_and_undo_restores(model, features, units, keep_mean, k):
    gains = make_gains(model, units, keep_mean=keep_mean, k=k)
    before = model.embed(features)
    state = {k: v.clone() for k, v in model.encoder.state_dict().items()}
    with torch.no_grad():
        edited = model.embed(features, NetworkGains(gains, model.encoder.sites))
    assert (edited - before).abs().max() > 1e-3
    folded = fold(model, gains)
    torch.testing.assert_close(model.embed(features), edited, atol=1e-5, rtol=1e-4)
    folded.undo()
    folded.undo()
    assert torch.equal(model.embed(features), before)
    assert all(torch.equal(v, state[k]) for k, v in model.encoder.state_dict().items())


@pytest.mark.parametrize("kind", ["bounded", "sparse", "rule"])
def test_bounded_sparse_and_rule_gains_fold_alike(model, features, kind):
    given = make_gains(model, ["s2.b0.h0", "s2.b1.h1", "s3.b0.h2"])
    values = {unit: np.clip(3.0 * np.abs(g), 0, 4) for unit, g in given.gains.items()}
    if kind == "sparse":
        values["s2.b1.h1"] = np.ones_like(values["s2.b1.h1"])
    gains = replace(given, gains=values)
    if kind == "rule":
        gains = apply_rule("retain", Ground(given.spectra, model.encoder.sites), {"share": 0.25})
        assert all(g.tolist() == [1, 1, 0, 0, 0, 0, 0, 0] for g in gains.gains.values())
    with torch.no_grad():
        edited = model.embed(features, NetworkGains(gains, model.encoder.sites))
    assert (edited - model.embed(features)).abs().max() > 1e-3
    fold(model, gains)
    torch.testing.assert_close(model.embed(features), edited, atol=1e-5, rtol=1e-4)


def test_a_rule_says_which_numbers_it_has(model):
    ground = Ground(make_gains(model, ["s2.b0.h0"]).spectra, model.encoder.sites)
    with pytest.raises(InputError, match="it has share"):
        apply_rule("retain", ground, {"k": 16})
    with pytest.raises(InputError, match="not between 0 and 1"):
        apply_rule("retain", ground, {"share": 16})
    with pytest.raises(InputError, match="is no rule"):
        apply_rule("retain-16", ground, {})


def test_a_coarse_gain_scales_the_head_and_folds(model, features):
    fine = make_gains(model, ["s2.b0.h0", "s3"])
    gains = Gains(
        {"s2.b0.h0": np.array([1.7]), "s3": np.array([0.4])},
        {unit: coarse(spectrum) for unit, spectrum in fine.spectra.items()},
    )
    alike = Gains({"s2.b0.h0": np.full(8, 1.7), "s3": np.full(64, 0.4)}, fine.spectra)
    with torch.no_grad():
        edited = model.embed(features, NetworkGains(gains, model.encoder.sites))
        same = model.embed(features, NetworkGains(alike, model.encoder.sites))
    torch.testing.assert_close(edited, same, atol=1e-5, rtol=1e-4)
    fold(model, gains)
    torch.testing.assert_close(model.embed(features), edited, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("units", UNITS, ids=lambda u: "+".join(u[:3]))
def test_gains_of_means_fold_and_learn(model, features, units, tmp_path):
    gains = make_gains(model, units, means=True)
    acting = NetworkGains(gains, model.encoder.sites)
    model.embed(features, acting).sum().backward()
    assert all(value.grad is not None for value in acting.means.values())
    with torch.no_grad():
        edited = model.embed(features, acting)
        plain = Gains(gains.gains, gains.spectra)
        without = model.embed(features, NetworkGains(plain, model.encoder.sites))
    assert (edited - without).abs().max() > 1e-4
    again = load_gains(save_gains(acting.gains(), tmp_path / "g"))
    assert again.means == pytest.approx(gains.means)
    fold(model, gains)
    torch.testing.assert_close(model.embed(features), edited, atol=1e-5, rtol=1e-4)


def test_gains_of_means_are_checked(model):
    gains = make_gains(model, ["s2"], means=True)
    with pytest.raises(InputError, match="mean of 's2' is nan"):
        check_gains(Gains(gains.gains, gains.spectra, means={"s2": float("nan")}))
    with pytest.raises(InputError, match="dropped"):
        check_gains(Gains(gains.gains, gains.spectra, keep_mean=False, means={"s2": 1.0}))
    assert blend(gains, 0.0).means == {"s2": 1.0}


def test_blend_zero_switches_off(model, features):
    gains = make_gains(model, ALL_HEADS)
    off = blend(gains, 0.0)
    assert all((v == 1).all() for v in off.gains.values())
    for unit, values in gains.gains.items():
        np.testing.assert_allclose(blend(gains, 1.0).gains[unit], values)


def test_only_gains_receive_gradients(model, features):
    gains = NetworkGains(make_gains(model, ["s2.b0.h0", "s3", "output"]), model.encoder.sites)
    model.embed(features, gains).sum().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in gains.parameters())
    assert all(p.grad is None for p in model.encoder.parameters())
    assert [n for n, _ in gains.named_parameters()] == ["values.0", "values.1", "values.2"]


def test_gradient_equals_finite_differences(model, features):
    encoder = model.encoder.double()
    given = make_gains(model, ["s2.b0.h1", "s3.b1.h3"])
    gains = NetworkGains(given, encoder.sites, dtype=torch.float64)
    x = features.double()

    def loss() -> Tensor:
        return (encoder.encode(x, edit=gains.edit()).latent ** 2).sum()

    loss().backward()
    with torch.no_grad():
        for value in gains.values:
            before = value[0].item()
            value[0] = before + 1e-6
            up = loss()
            value[0] = before - 1e-6
            down = loss()
            value[0] = before
            assert ((up - down) / 2e-6).item() == pytest.approx(value.grad[0].item(), rel=1e-4)


def test_first_block_is_where_the_first_edit_is(model):
    sites = model.encoder.sites
    assert NetworkGains(make_gains(model, ["s3.b0.h0", "s2.b1.h0"]), sites).first_block == 5
    assert NetworkGains(make_gains(model, ["s3"]), sites).first_block == 6
    assert NetworkGains(make_gains(model, ["output"]), sites).first_block == 8


def test_affine_by_hand():
    spectrum = Spectrum(np.array([1.0, 0.0]), np.array([[1.0, 0.0]]), np.array([1.0]), 10)
    a, c = affine(spectrum, np.array([3.0]), keep_mean=True)
    np.testing.assert_allclose(np.array([2.0, 5.0]) @ a + c, [1 + 3 * (2 - 1), 5])
    a, c = affine(spectrum, np.array([3.0]), keep_mean=False)
    np.testing.assert_allclose(np.array([2.0, 5.0]) @ a + c, [3 * (2 - 1), 0])


def test_residual_head_has_no_bias_to_fold_the_output_into(model):
    model.head = ResidualMLP(LATENT, 12)
    with pytest.raises(ModelError, match="output"):
        fold(model, make_gains(model, ["output"]))


def test_file_round_trip_is_small_and_says_what_it_is(model, tmp_path):
    gains = make_gains(model, ALL_HEADS)
    gains = Gains(gains.gains, gains.spectra, fitted_on={"model": {"name": "tiny", "sha256": "ab"}})
    path = save_gains(gains, tmp_path / "mine")
    assert path.stat().st_size < 8_000
    back = load_gains(path)
    assert back.fitted_on == gains.fitted_on
    assert back.keep_mean
    assert list(back.gains) == list(gains.gains)
    for unit in gains.gains:
        np.testing.assert_allclose(back.gains[unit], gains.gains[unit], rtol=1e-6)
        for got, want in zip(affine_of(back, unit), affine_of(gains, unit), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5)
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["n_gains"] == 8 * len(ALL_HEADS)
    assert card["moved_most"][0]["unit"] in gains.gains
    assert not list(tmp_path.glob(".*"))


def test_files_that_do_not_belong_together_are_refused(model, tmp_path):
    save_gains(make_gains(model, ["s3"]), tmp_path / "a")
    path = save_gains(make_gains(model, ["s2"]), tmp_path / "b")
    spectra_path(path).write_bytes(spectra_path(tmp_path / "a.safetensors").read_bytes())
    with pytest.raises(InputError, match="not the file"):
        load_gains(path)
    spectra_path(path).unlink()
    with pytest.raises(InputError, match=r"no 'b\.spectra"):
        load_gains(path)
    (tmp_path / "c.safetensors").write_bytes(b"not a file of this kind")
    with pytest.raises(InputError, match="cannot be read"):
        load_gains(tmp_path / "c")
    with pytest.raises(InputError, match="there is no gains file"):
        load_gains(tmp_path / "nothing")


def test_bad_gains_are_named(model):
    gains = make_gains(model, ["s2.b0.h0", "s2.b0.h1"])
    gains.gains["s2.b0.h1"][3] = np.nan
    with pytest.raises(InputError, match=r"gain 3 of 's2\.b0\.h1'"):
        check_gains(gains)
    with pytest.raises(InputError, match="5 gains for 8 components"):
        check_gains(Gains({"s2.b0.h0": np.ones(5)}, gains.spectra))
    with pytest.raises(InputError, match="without its spectrum"):
        check_gains(Gains({"s3": np.ones(5)}, gains.spectra))


def test_gains_of_another_model_are_refused(model):
    gains = make_gains(model, ["s2"])
    about = {"model": {"name": "other", "sha256": "f" * 64}}
    with pytest.raises(ModelError, match="'other'"):
        check_fits(
            Gains(gains.gains, gains.spectra, fitted_on=about), model.encoder.sites, 64, "0" * 64
        )
    narrow = Spectrum(np.zeros(7), np.eye(7), np.ones(7), 10)
    with pytest.raises(ModelError, match="7 dimensions"):
        fold(model, Gains({"s2": np.ones(7)}, {"s2": narrow}))
    with pytest.raises(ModelError, match="'s7' is no unit"):
        fold(model, Gains({"s7": np.ones(7)}, {"s7": narrow}))
    with pytest.raises(InputError, match="direct path"):
        fold(model, Gains({"s2": np.ones(7)}, {"s2": narrow}, path="direct"))


def test_moved_orders_by_energy_of_the_change(model):
    gains = make_gains(model, ["s2.b0.h0", "s2.b0.h1"])
    gains.gains["s2.b0.h0"][:] = 1.0
    gains.gains["s2.b0.h0"][0] = 1.001
    assert [row["unit"] for row in moved(gains)] == ["s2.b0.h1", "s2.b0.h0"]
    gains.gains["s2.b0.h0"][:] = 1.0
    assert [row["unit"] for row in moved(gains)] == ["s2.b0.h1"]
