"""Time and frequency of tokens, cell by cell, against a construction that knows no fold: patches
are cut from the plain log-mel, heads add up where the stream is, neighbours merge in twos."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import family_model
from torch.nn import functional

import residual_audio as ra
from residual_audio.models.htsat import HTSAT
from residual_audio.models.vit import ViT


def of(cache: ra.Cache, name: str) -> torch.Tensor:
    return torch.from_numpy(cache.time_frequency(name))  # clip time frequency d


@pytest.fixture(scope="module", params=("nano", "htsat-tiny-random:3"))
def swin(request: pytest.FixtureRequest) -> tuple[ra.Model, ra.Cache]:
    model = ra.load_model(request.param, device="cpu")
    wave = np.random.default_rng(0).normal(size=model.spec.n_samples).astype(np.float32) / 10
    keep = ["stream", "end", "tokens", "s0.*.attention", "s0.*.mlp", "s0.*.h*", "s2.b1.h*"]
    keep += ["s2.b1.attention"]
    return model, model.run([wave], keep=keep, sample_rate=model.spec.sample_rate_hz)


@torch.no_grad()
def test_a_cell_is_the_patch_of_its_time_and_frequency(swin: tuple[ra.Model, ra.Cache]) -> None:
    """16 numbers of the log-mel at frames 4t … and mel bins 4f …, through the patch's weights."""
    model, cache = swin
    encoder = model.encoder
    assert isinstance(encoder, HTSAT)
    wave = np.random.default_rng(0).normal(size=model.spec.n_samples).astype(np.float32) / 10
    mel = model.front_end(torch.from_numpy(wave)[None])
    assert isinstance(mel, torch.Tensor)
    norm = encoder.mel_norm
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    mel = (mel - norm.running_mean) * scale + norm.bias  # clip frame mel
    mel = functional.interpolate(
        mel[:, None], (encoder.config.n_frames, mel.shape[2]), mode="bicubic", align_corners=True
    )[:, 0]
    p = encoder.config.patch
    cells = mel.unfold(1, p, p).unfold(2, p, p)  # clip time frequency frame mel
    want = torch.einsum("ctfxy,dyx->ctfd", cells, encoder.patch.weight[:, 0]) + encoder.patch.bias
    np.testing.assert_allclose(of(cache, "s0.b0.stream"), encoder.patch_norm(want), atol=2e-4)


@torch.no_grad()
@pytest.mark.parametrize("block", ["s0.b0", "s0.b1", "s2.b1"])
def test_heads_lie_where_their_block_adds_them(swin: tuple[ra.Model, ra.Cache], block: str) -> None:
    """Also in shifted windows: Σ head · W_O + b is the attention, cell by cell."""
    model, cache = swin
    site = next(s for s in model.encoder.sites if str(s) == f"{block}.attention")
    encoder = model.encoder
    assert isinstance(encoder, HTSAT)
    heads = torch.cat([of(cache, str(head)) for head in site.heads], -1)
    want = encoder.block(site).proj(heads)
    np.testing.assert_allclose(of(cache, f"{block}.attention"), want, atol=1e-4)
    if block == "s0.b0":
        stream = sum(of(cache, f"{block}.{part}") for part in ("stream", "attention", "mlp"))
        np.testing.assert_allclose(of(cache, "s0.b1.stream"), stream, atol=1e-4)


@torch.no_grad()
def test_neighbours_in_time_and_frequency_merge(swin: tuple[ra.Model, ra.Cache]) -> None:
    """(f, t), (f + 1, t), (f, t + 1), (f + 1, t + 1) are the four slots of every merge."""
    model, cache = swin
    encoder = model.encoder
    assert isinstance(encoder, HTSAT)
    for stage, merge in enumerate(encoder.merges):
        end = of(cache, f"s{stage}.end")
        slots = [end[:, t::2, f::2] for t, f in ((0, 0), (0, 1), (1, 0), (1, 1))]
        want = merge.reduction(merge.norm(torch.cat(slots, -1)))
        np.testing.assert_allclose(of(cache, f"s{stage + 1}.b0.stream"), want, atol=1e-4)
    last = encoder.norm(of(cache, f"s{len(encoder.merges)}.end"))
    np.testing.assert_allclose(of(cache, "tokens"), last, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("family", ["ast", "m2d"])
def test_a_patch_of_a_vit_lies_where_it_was_cut(family: str) -> None:
    """One patch of the log-mel moved: one cell of the stream moves, that of its time and pitch."""
    model = family_model(family)
    encoder = model.encoder
    assert isinstance(encoder, ViT)
    features = torch.randn(1, 51, 16, generator=torch.Generator().manual_seed(0))
    wave = np.random.default_rng(0).normal(size=8000).astype(np.float32) / 10
    grid = of(model.run([wave], keep="s0.b0.stream", sample_rate=8000), "s0.b0.stream")
    n_times, n_frequencies = grid.shape[1:3]
    places = encoder.time_frequency(0, encoder.embed(features).shape[1])
    plain = encoder.embed(features)[0]
    for time, frequency in ((0, 0), (3, 1), (5, 0)):
        moved = features.clone()
        moved[:, 8 * time : 8 * time + 8, 8 * frequency : 8 * frequency + 8] += 1
        changed = (encoder.embed(moved)[0] - plain).abs().amax(-1) > 1e-4
        assert places[changed].tolist() == [[time, frequency]]
        assert time < n_times
        assert frequency < n_frequencies
