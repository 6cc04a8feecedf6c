"""Ablation inside the network: exact equals naive, first-order equals the derivative."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tiny_model import Bare, bare_features, bare_model
from torch import Tensor, nn

from residual_audio.ablation.effects import by_class, summary
from residual_audio.ablation.exact import exact_ablation
from residual_audio.ablation.first_order import first_order_ablation
from residual_audio.ablation.removal import (
    Means,
    Replacement,
    reference_means,
    removal,
    remove,
)
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.models.encoder import States
from residual_audio.models.head_copies import head_maps
from residual_audio.models.precision import products_in
from residual_audio.types import parse_unit, units_of

N_CLIPS, N_CLASSES = 5, 4


@pytest.fixture(scope="module")
def model() -> Bare:
    return bare_model()


@pytest.fixture(scope="module")
def features() -> Tensor:
    return bare_features(N_CLIPS)


@pytest.fixture(scope="module")
def judge() -> Judge:
    rng = np.random.default_rng(2)
    classes = [f"c{i}" for i in range(N_CLASSES)]
    labels = [classes[i % N_CLASSES] for i in range(N_CLIPS)]
    return Judge.for_labels(labels, classes, rng.normal(size=(N_CLASSES, 12)), scale=10.0)


def batches(features: Tensor, size: int = 3) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.arange(len(features)).split(size), features.split(size), strict=True))


@torch.no_grad()
def naive(
    model: Bare, features: Tensor, judge: Judge, edit: dict, measure: str = "margin"
) -> np.ndarray:
    base = model.joint(model.encoder.encode(features))
    joint = model.joint(model.encoder.encode(features, edit=edit))
    return judge.measure(joint, torch.arange(len(features)), base)[measure].numpy()


def zero_head(h: int) -> Callable[[Tensor], Tensor]:
    def change(x: Tensor) -> Tensor:
        x = x.clone()
        x[:, :, h] = 0
        return x

    return change


def test_exact_equals_a_full_forward_with_the_head_zeroed(model, features, judge):
    units = units_of(model.encoder.sites, "head")
    found = exact_ablation(model, batches(features), judge, units, units_per_batch=3)
    sites = {(s.stage, s.block): s for s in model.encoder.sites if s.kind == "attention"}
    worst = 0.0
    for i, unit in enumerate(units):
        (head,) = unit.heads
        edit = {(sites[head.stage, head.block], "raw"): zero_head(head.head)}
        for measure in ("margin", "loss", "shift"):
            want = naive(model, features, judge, edit, measure)
            np.testing.assert_allclose(found.after[measure][i], want, atol=2e-5)
        worst = max(worst, abs(found.delta("margin")[i]).max())
    assert worst > 1e-3  # the heads do matter: the comparison was not of nothing with nothing


@pytest.mark.parametrize("name", ["s1.b0.attention", "s2.b1.mlp", "s2", "mine=s0.b1.h0+s3.b0.mlp"])
@pytest.mark.parametrize("mode", ["zero", "mean"])
def test_sites_stages_and_sets_equal_a_full_forward(model, features, judge, name, mode):
    sites = model.encoder.sites
    unit = parse_unit(name, sites)
    instead = Replacement(mode, reference_means(model, batches(features)))
    found = exact_ablation(
        model, batches(features), judge, [name, *units_of(sites, "mlp")[:2]], instead
    )
    want = naive(model, features, judge, remove(unit, sites, instead))
    np.testing.assert_allclose(found.after["margin"][0], want, atol=2e-5)


def test_resample_takes_the_value_of_the_clip_before(model, features, judge):
    sites = model.encoder.sites
    unit = parse_unit("s2.b0.h1", sites)
    site = next(s for s in sites if str(s) == "s2.b0.attention")
    found = exact_ablation(model, batches(features, 5), judge, [unit], Replacement("resample"))

    def swap(x: Tensor) -> Tensor:
        x = x.clone()
        x[:, :, 1] = x[:, :, 1].roll(1, 0)
        return x

    want = naive(model, features, judge, {(site, "raw"): swap})
    np.testing.assert_allclose(found.after["margin"][0], want, atol=2e-5)


def test_resample_with_a_single_clip_is_refused(model, features, judge):
    unit = parse_unit("s2.b0.h1", model.encoder.sites)
    with pytest.raises(InputError, match="at least two"):
        exact_ablation(
            model, [(torch.tensor([0]), features[:1])], judge, [unit], Replacement("resample")
        )


@pytest.mark.parametrize("mode", ["zero", "mean"])
def test_a_head_taken_out_inside_a_run_is_the_block_without_it(model, features, mode):
    """The short way through the block (one head's columns alone) against the long one."""
    sites = model.encoder.sites
    instead = Replacement(mode, reference_means(model, batches(features)))
    for block in range(8):
        units = [unit for unit in units_of(sites, "head") if unit.block == block]
        keep = States(sites, {block})
        with torch.no_grad():
            model.encoder.encode(features[:1], tap=keep)
            edit = removal(units, sites, instead)
            long = model.encoder.encode(None, edit=edit, start=keep.states[block])
            with products_in("float32", torch.device("cpu")):
                assert head_maps(model.encoder.block(sites[2 * block])) is not None
                short = model.encoder.encode(None, edit=edit, start=keep.states[block])
        torch.testing.assert_close(short.latent, long.latent, atol=2e-5, rtol=1e-5)


def test_means_are_of_the_space_they_replace(model, features):
    means = reference_means(model, batches(features))
    seen: dict = {}

    class Tap:
        points = frozenset({"raw", "out"})

        def __call__(self, point, where, value):
            seen[where, point] = value.mean((0, 1))

    with torch.no_grad():
        model.encoder.encode(features, tap=Tap())
    for (site, point), value in seen.items():
        table = means.raw if point == "raw" else means.out
        torch.testing.assert_close(table[site], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mode", ["zero", "mean"])
@pytest.mark.parametrize("level", ["head", "attention", "mlp", "stage"])
def test_first_order_is_the_derivative_by_finite_differences(model, features, judge, level, mode):
    double = Bare(_double(model.encoder), _double(model.head))
    x = features.double()
    sites = double.encoder.sites
    means = reference_means(double, batches(x))
    means = Means(
        {s: v.double() for s, v in means.raw.items()}, {s: v.double() for s, v in means.out.items()}
    )
    instead = Replacement(mode, means)
    units = units_of(sites, level)[-4:]
    found = first_order_ablation(
        double, batches(x), judge, units, instead, measures=("margin", "loss")
    )
    step = 1e-6
    for i, unit in enumerate(units):
        full = remove(unit, sites, instead)
        partly = {
            key: (lambda v, change=change: (1 - step) * v + step * change(v))
            for key, change in full.items()
        }
        for measure in ("margin", "loss"):
            moved = naive(double, x, judge, partly, measure)
            want = (moved - found.before[measure]) / step
            np.testing.assert_allclose(found.delta(measure)[i], want, rtol=1e-3, atol=1e-6)


def _double(module: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(module).double()


def test_first_order_refuses_what_has_no_derivative(model, features, judge):
    with pytest.raises(InputError, match="correct"):
        first_order_ablation(
            model,
            batches(features),
            judge,
            units_of(model.encoder.sites, "head"),
            measures=("correct",),
        )


def test_model_is_untouched_afterwards(model, features, judge):
    before = model.joint(model.encoder.encode(features))
    exact_ablation(model, batches(features), judge, units_of(model.encoder.sites, "stage"))
    first_order_ablation(model, batches(features), judge, units_of(model.encoder.sites, "head"))
    assert torch.equal(before, model.joint(model.encoder.encode(features)))


def test_summary_intervals_and_classes(model, features, judge):
    found = exact_ablation(
        model, batches(features), judge, units_of(model.encoder.sites, "attention")
    )
    rows = summary(found, n_resamples=200)
    assert [row.unit for row in rows] == list(found.units)
    for row in rows:
        mean, low, high = row.changes["margin"]
        assert low <= mean <= high
    classes = by_class(found, ["a", "b", "a", "b", "a"], groups=["1", "2", "3", "2", "4"])
    assert (classes.classes, classes.n) == (("a", "b"), (3, 2))
    own = found.delta("margin")[:, [0, 2, 4]]
    np.testing.assert_allclose(classes.mean[:, 0], own.mean(1))
    reach = 4.302653 * own.std(1, ddof=1) / np.sqrt(3)  # t of two degrees of freedom
    np.testing.assert_allclose(classes.high[:, 0], own.mean(1) + reach, rtol=1e-5)
    assert np.isnan(classes.low[:, 1]).all()  # both of one recording
