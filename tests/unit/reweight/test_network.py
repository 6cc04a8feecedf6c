"""Training inside the network: cached states equal full passes; low-rank updates; rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tiny_model import Bare, bare_features, bare_model
from torch import Tensor

from residual_audio.ablation.removal import Replacement, reference_means, remove
from residual_audio.capture.capture_settings import CaptureSettings, SamplePlan
from residual_audio.capture.operators import encoder_operators
from residual_audio.capture.recorder import Recorder
from residual_audio.direct.contributions import Captured, Contributions
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.models.joint import MLP
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.passes.lengths import Rows
from residual_audio.reweight.axes import chosen_units, direct_spectra, network_spectra
from residual_audio.reweight.cached import Entrances, embed_from_features
from residual_audio.reweight.descent import FitSettings, fit
from residual_audio.reweight.gains import identity_gains
from residual_audio.reweight.lora import LowRank, rank_within
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.objectives import cross_entropy
from residual_audio.reweight.prune import prune_heads
from residual_audio.reweight.rules import STRATEGIES, Ground, fisher_weighted, text_aligned
from residual_audio.reweight.terms import direct_terms
from residual_audio.reweight.tuning import TunedWeights
from residual_audio.types import UnitLike, parse_unit, parse_units, units_of

N = 8


@pytest.fixture(scope="module")
def model() -> Bare:
    return bare_model()


@pytest.fixture(scope="module")
def features() -> Tensor:
    return bare_features(N)


@pytest.fixture(scope="module")
def judge() -> Judge:
    texts = np.random.default_rng(2).normal(size=(4, 12))
    return Judge.for_labels(
        [f"c{i % 4}" for i in range(N)], [f"c{i}" for i in range(4)], texts, 10.0
    )


@pytest.fixture(scope="module")
def captured(model, features) -> Captured:
    plan = SamplePlan(N, CaptureSettings.of("heads,direct"))
    arrays = Recorder(model.encoder, plan).run(features)
    return Captured(model.encoder.sites, arrays, encoder_operators(model.encoder, ("direct",)))


def batches(features: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.arange(N).split(3), features.split(3), strict=True))


def head_gains(model: Bare, names: Sequence[UnitLike]) -> NetworkGains:
    rng = np.random.default_rng(0)
    units = parse_units(names, model.encoder.sites)
    vectors = {u: rng.normal(size=(20, 8)) for u in units}
    spectra = network_spectra(vectors.__getitem__, units, slice(None))
    return NetworkGains(identity_gains(spectra), model.encoder.sites)


@pytest.mark.parametrize("stages", [[3], [2, 3], [0]])
def test_cached_states_give_the_embeddings_of_full_passes(model, features, stages):
    gains = head_gains(model, chosen_units(model.encoder.sites, "head", stages))
    with torch.no_grad():
        for value in gains.values:
            value.uniform_(0.5, 1.5)
    entrances = Entrances.record(model, batches(features), N, gains.first_block)
    rows = torch.tensor([5, 0, 3])
    with torch.no_grad():
        found = entrances.embed(model, gains)(rows)
        want = embed_from_features(model, gains, Rows.of(features))(rows)
    torch.testing.assert_close(found, want, atol=1e-5, rtol=1e-4)


def test_training_cached_equals_training_uncached(model, features, judge):
    found = []
    for cached in (True, False):
        gains = head_gains(model, chosen_units(model.encoder.sites, "head", [3]))
        if cached:
            embed = Entrances.record(model, batches(features), N, 6).embed(model, gains)
        else:
            embed = embed_from_features(model, gains, Rows.of(features))
        settings = FitSettings(epochs=3, batch_size=4, learning_rate=0.02)
        history = fit(
            embed, list(gains.parameters()), cross_entropy(judge), np.arange(N), None, settings
        )
        found.append(torch.cat([v.detach() for v in gains.values]))
        assert history.train_loss[-1] < history.train_loss[0]
    torch.testing.assert_close(*found, atol=2e-3, rtol=0)
    assert all(p.grad is None for p in model.encoder.parameters())


def test_states_of_a_later_block_cannot_serve_an_earlier_edit(model, features):
    entrances = Entrances.record(model, batches(features), N, 6)
    with pytest.raises(InputError, match="edits block 4"):
        entrances.embed(model, head_gains(model, ["s2.b0.h0"]))
    with pytest.raises(InputError, match="GB"):
        Entrances.record(model, batches(features), N, 0, max_bytes=10)


def test_clips_of_different_lengths_go_on_from_their_own_states():
    torch.manual_seed(0)
    config = ViTConfig(
        width=16, depth=2, n_heads=2, hidden=32, n_mels=16, n_frames=32, norm_eps=1e-6, chunks=True
    )
    model = Bare(ViT(config).eval().requires_grad_(False), MLP(16, 8, 6).requires_grad_(False))
    short, long = torch.randn(3, 32, 16), torch.randn(2, 64, 16)
    parts = [(torch.tensor([0, 2, 4]), short), (torch.tensor([1, 3]), long)]
    units = parse_units(["s0.b1.h*"], model.encoder.sites)
    rng = np.random.default_rng(0)
    vectors = {u: rng.normal(size=(20, 8)) for u in units}
    spectra = network_spectra(vectors.__getitem__, units, slice(None))
    gains = NetworkGains(identity_gains(spectra), model.encoder.sites)
    with torch.no_grad():
        for value in gains.values:
            value.uniform_(0.5, 1.5)
        rows = torch.tensor([3, 0, 1, 4])
        found = Entrances.record(model, parts, 5, gains.first_block).embed(model, gains)(rows)
        want = embed_from_features(model, gains, Rows.collect(parts, 5))(rows)
    assert len(found) == 4
    torch.testing.assert_close(found, want, atol=1e-5, rtol=1e-4)


def test_output_gains_need_only_latents(model, features):
    spectrum = fit_spectrum(np.random.default_rng(0).normal(size=(90, 64)))
    gains = NetworkGains(identity_gains({"output": spectrum}), model.encoder.sites)
    assert gains.first_block == 8
    entrances = Entrances.record(model, batches(features), N, 8)
    assert entrances.tokens.take(slice(None)).shape == (N, 64)
    want = model.joint(model.encoder.encode(features))
    torch.testing.assert_close(entrances.embed(model, gains)(torch.arange(N)), want)


def test_low_rank_update_starts_as_nothing_and_learns(model, features, judge):
    sites = model.encoder.sites
    chosen = [s for s in sites if s.kind == "attention" and s.stage == 3]
    lora = LowRank(sites, chosen, rank=2)
    assert sum(p.numel() for p in lora.parameters()) == 2 * 2 * (64 + 64)
    embed = Entrances.record(model, batches(features), N, lora.first_block).embed(model, lora)
    with torch.no_grad():
        want = model.joint(model.encoder.encode(features))
        torch.testing.assert_close(embed(torch.arange(N)), want, atol=1e-6, rtol=1e-5)
    history = fit(
        embed,
        list(lora.parameters()),
        cross_entropy(judge),
        np.arange(N),
        None,
        FitSettings(epochs=5, batch_size=8, learning_rate=0.02),
    )
    assert history.train_loss[-1] < history.train_loss[0]
    with torch.no_grad():  # the edit equals a changed W_O
        site = chosen[0]
        weight, bias = model.encoder.output_projection(site)
        raw = torch.randn(2, 4, site.n_heads, site.d_head)
        edits = lora.edit()
        edits[site, "raw"](raw)
        got = edits[site, "out"](raw.flatten(-2) @ weight + bias)
        want = raw.flatten(-2) @ (weight + lora.down[0] @ lora.up[0]) + bias
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_rank_within_a_budget(model):
    sites = model.encoder.sites
    every = 2 * 2 * (8 + 16 + 32 + 64)
    chosen, rank = rank_within(every, sites)
    assert (len(chosen), rank) == (8, 1)
    assert rank_within(3 * every + 5, sites)[1] == 3
    few, rank = rank_within(300, sites)
    assert ([str(s) for s in few], rank) == (["s3.b0.attention", "s3.b1.attention"], 1)
    with pytest.raises(InputError, match="more than 5"):
        rank_within(5, sites)


def test_fine_tuning_is_undone(model, features, judge):
    before = model.joint(model.encoder.encode(features))
    whole = TunedWeights(model.encoder)
    embed = embed_from_features(model, whole, Rows.of(features))
    fit(
        embed,
        whole.parameters,
        cross_entropy(judge),
        np.arange(N),
        None,
        FitSettings(epochs=1, learning_rate=1e-3),
    )
    assert not torch.equal(before, model.joint(model.encoder.encode(features)).detach())
    whole.restore()
    assert torch.equal(before, model.joint(model.encoder.encode(features)))
    assert not any(p.requires_grad for p in model.encoder.parameters())


def test_contributions_of_a_real_encoder_sum_to_its_latent(model, captured):
    parts = Contributions(captured)
    everything = units_of(parts.sites, "attention") + units_of(parts.sites, "mlp")
    left = parts.rest(everything)
    constants = sum(v for k, v in parts.constants().items() if not k.endswith("bias"))
    embedding = parts["embedding"]
    scale = np.abs(parts.latent).max()
    np.testing.assert_allclose(left, constants + embedding, atol=1e-5 * scale)


def test_direct_terms_of_a_real_encoder(model, captured):
    parts = Contributions(captured)
    terms = direct_terms(parts, direct_spectra(parts, units_of(parts.sites, "head")))
    assert torch.equal(terms.latent(torch.ones(terms.n_gains)), torch.from_numpy(parts.latent))


def ground(model: Bare, k: int = 8) -> Ground:
    rng = np.random.default_rng(0)
    units = units_of(model.encoder.sites, "head")
    vectors = {u: rng.normal(size=(40, 8)) * np.geomspace(4, 0.1, 8) for u in units}
    spectra = network_spectra(vectors.__getitem__, units, slice(None))
    codes = np.arange(40) % 4
    coordinates = {
        str(u): (own - spectra[str(u)].mean) @ spectra[str(u)].basis.T for u, own in vectors.items()
    }
    for value in coordinates.values():
        value[:, 2] = codes + 0.01 * rng.normal(size=40)  # component 2 knows the class
    return Ground(
        spectra,
        model.encoder.sites,
        coordinates=coordinates.__getitem__,
        codes=codes,
        joint_axes=lambda unit: np.eye(8, 12),
        texts=np.eye(12)[[0, 3]],
    )


def test_rules_touch_only_their_blocks(model):
    g = ground(model)
    pruned = STRATEGIES["prune-early"](g, share=0.25)
    assert pruned.gains["s0.b0.h0"].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert pruned.gains["s0.b1.h0"].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert (pruned.gains["s1.b0.h0"] == 1).all()
    late = STRATEGIES["suppress-degenerate"](g, blocks=(7,))
    values = g.spectra["s3.b1.h0"].eigenvalues
    assert (late.gains["s3.b1.h0"] == (values >= 0.05 * values[0])).all()
    assert (late.gains["s3.b0.h0"] == 1).all()
    window = STRATEGIES["window"](g, first=0.5, last=1.0, factor=2.0)
    assert window.gains["s2.b0.h0"].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert (window.gains["s1.b0.h0"] == 1).all()
    minor = STRATEGIES["amplify-minor"](g, blocks=(4,))
    assert minor.gains["s2.b0.h0"][0] == 1
    assert (minor.gains["s2.b0.h0"] == 1.5).any()
    assert (minor.gains["s2.b1.h0"] == 1).all()
    assert STRATEGIES["retain"](g, share=3 / 8).gains["s3.b0.h0"].tolist() == [
        1,
        1,
        1,
        0,
        0,
        0,
        0,
        0,
    ]


def test_fisher_rule_raises_the_component_that_knows_the_class(model):
    gains = fisher_weighted(ground(model))
    for values in gains.gains.values():
        assert values.argmax() == 2
        assert values[2] > 1 > np.delete(values, 2).max()
        assert (values >= 0).all()
        assert (values <= 2).all()


def test_text_rule_raises_components_along_the_texts(model):
    gains = text_aligned(ground(model))
    values = gains.gains["s2.b0.h0"]
    assert values[0] > 1
    assert values[3] > 1
    assert np.allclose(np.delete(values, [0, 3]), 0, atol=1e-6)


def test_rules_say_what_they_lack(model):
    bare = Ground(ground(model).spectra, model.encoder.sites)
    with pytest.raises(InputError, match="labelled"):
        fisher_weighted(bare)
    with pytest.raises(InputError, match="class texts"):
        text_aligned(bare)


@pytest.mark.parametrize("mode", ["zero", "mean"])
def test_a_pruned_encoder_equals_the_removal_of_its_heads(model, features, mode):
    gone = ["s1.b1.h0", "s2.b0.h3", "s2.b0.h1", "s3.b1.h5"]
    means = reference_means(model, batches(features))
    unit = parse_unit("+".join(gone), model.encoder.sites)
    with torch.no_grad():
        want = model.encoder.encode(
            features, edit=remove(unit, model.encoder.sites, Replacement(mode, means))
        )
        small = prune_heads(model.encoder, gone, means.raw if mode == "mean" else None)
        found = small.encode(features)
    torch.testing.assert_close(found.latent, want.latent, atol=2e-5, rtol=1e-4)
    count = sum(p.numel() for p in small.parameters())
    assert count < sum(p.numel() for p in model.encoder.parameters())
    with pytest.raises(InputError, match=r"all heads of s0\.b0\.attention"):
        prune_heads(model.encoder, ["s0.b0.h0"])
    with pytest.raises(InputError, match=r"'s9\.b0\.h0' is no unit"):
        prune_heads(model.encoder, ["s9.b0.h0"])
    with pytest.raises(InputError, match="is no head"):
        prune_heads(model.encoder, ["s3.b0.mlp"])


@pytest.mark.parametrize("mode", ["zero", "mean"])
def test_a_plain_stack_of_blocks_is_pruned_too(mode):
    torch.manual_seed(0)
    config = ViTConfig(
        width=16, depth=3, n_heads=4, hidden=32, n_mels=32, n_frames=32, norm_eps=1e-6
    )
    encoder = ViT(config).eval().requires_grad_(False)
    features = torch.randn(N, 32, 32, generator=torch.Generator().manual_seed(1))
    plain = Bare(encoder, MLP(16, 16, 12))
    means = reference_means(plain, batches(features))
    gone = ["s0.b0.h1", "s0.b2.h0", "s0.b2.h3"]
    edit = remove(
        parse_unit("+".join(gone), encoder.sites), encoder.sites, Replacement(mode, means)
    )
    with torch.no_grad():
        want = encoder.encode(features, edit=edit)
        small = prune_heads(encoder, gone, means.raw if mode == "mean" else None)
        found = small.encode(features)
    torch.testing.assert_close(found.latent, want.latent, atol=2e-5, rtol=1e-4)
