"""The encoder: transformers as the oracle, and the laws of taps, edits and saved states."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import ClapConfig, ClapModel

from residual_audio.errors import InputError
from residual_audio.models.encoder import State, States
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.swin_geometry import z_order
from residual_audio.models.swin_names import (
    from_transformers,
    from_upstream,
    read_config,
    to_transformers,
    to_upstream,
)
from residual_audio.models.weights import load_strict
from residual_audio.types import Site

SMALL = HTSATConfig(embed_dim=16, window=4, spec_size=128)


@pytest.fixture(scope="module")
def encoder() -> HTSAT:
    return randomised(HTSAT(SMALL))


@pytest.fixture(scope="module")
def features() -> Tensor:
    return torch.randn(3, 250, 64, generator=torch.Generator().manual_seed(1))


def randomised(module: HTSAT, seed: int = 0) -> HTSAT:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = 0.1 * noise if parameter.ndim > 1 else 0.7 + 0.2 * noise
    return module.eval().requires_grad_(False)


class Everything:
    points = frozenset({"stream", "raw", "out", "end", "scale"})

    def __init__(self) -> None:
        self.seen: list[tuple[str, Site | int, Tensor]] = []

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        self.seen.append((point, where, value.clone()))

    def get(self, point: str, where: Site | int) -> Tensor:
        return next(value for p, w, value in self.seen if p == point and w == where)


@pytest.mark.parametrize("size", ["tiny", "base-depth"])
def test_equals_transformers_at_real_size(size: str) -> None:
    torch.manual_seed(0)
    config = ClapConfig()
    if size == "base-depth":
        config.audio_config.depths = [2, 2, 12, 2]
    theirs = ClapModel(config).audio_model.eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, 0.5 if parameter.ndim < 2 else 0.0, 0.05)
    ours_state = from_transformers(
        {k.removeprefix("audio_encoder."): v for k, v in theirs.state_dict().items()}
    )
    ours = HTSAT(read_config(ours_state, "test")).eval()
    load_strict(ours, ours_state, "test")
    x = torch.randn(2, 1001, 64)
    with torch.inference_mode():
        expected = theirs(input_features=x[:, None]).pooler_output
        got = ours(x)
    assert sum(site.n_heads for site in ours.sites) == (184 if size == "tiny" else 280)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("there_and_back", ["upstream", "transformers"])
def test_names_go_there_and_back(encoder: HTSAT, there_and_back: str) -> None:
    to, back = (
        (to_upstream, from_upstream)
        if there_and_back == "upstream"
        else (to_transformers, from_transformers)
    )
    state = encoder.state_dict()
    again = back(to(state))
    assert again.keys() == state.keys()
    assert all(torch.equal(again[key], state[key]) for key in state)


def test_z_order_keeps_windows_and_merges_contiguous() -> None:
    order = z_order(16)
    assert sorted(order.tolist()) == list(range(256))
    first_four = [(i // 16, i % 16) for i in order[:4].tolist()]
    assert first_four == [(0, 0), (1, 0), (0, 1), (1, 1)]
    for window in order.view(-1, 64):
        rows, columns = window // 16, window % 16
        assert rows.max() - rows.min() == 7
        assert columns.max() - columns.min() == 7


def test_heads_sum_to_the_attention_output(encoder: HTSAT, features: Tensor) -> None:
    tap = Everything()
    encoder.encode(features, tap=tap)
    for site in encoder.sites:
        if site.kind != "attention":
            continue
        weight, bias = encoder.output_projection(site)
        raw = tap.get("raw", site)
        total = sum(
            raw[:, :, h] @ weight[h * site.d_head : (h + 1) * site.d_head]
            for h in range(site.n_heads)
        )
        torch.testing.assert_close(total + bias, tap.get("out", site), atol=1e-5, rtol=1e-5)


def test_stage_stream_is_start_plus_every_output(encoder: HTSAT, features: Tensor) -> None:
    tap = Everything()
    encoder.encode(features, tap=tap)
    for stage, depth in enumerate(SMALL.depths):
        sites = [site for site in encoder.sites if site.stage == stage]
        assert len(sites) == 2 * depth
        total = tap.get("stream", sites[0]) + sum(tap.get("out", site) for site in sites)
        torch.testing.assert_close(total, tap.get("end", stage), atol=1e-4, rtol=1e-4)


def test_tapping_changes_no_bit(encoder: HTSAT, features: Tensor) -> None:
    plain = encoder.encode(features).latent
    assert torch.equal(plain, encoder.encode(features, tap=Everything()).latent)


def test_attention_maps_are_the_probabilities_that_were_used(
    encoder: HTSAT, features: Tensor
) -> None:
    class Maps(Everything):
        points = frozenset({"maps", "raw"})

    tap = Maps()
    latent = encoder.encode(features, tap=tap).latent
    torch.testing.assert_close(latent, encoder.encode(features).latent, atol=1e-5, rtol=1e-5)
    maps = tap.get("maps", encoder.sites[2])  # the first shifted block
    assert maps.shape == (3, 64, 4, 16, 16)
    torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))
    # Windows at the wrapped edge hold tokens from both ends, which must not see each other.
    assert (maps[:, -1] < 1e-20).any()


@pytest.mark.parametrize("block", [0, 1, 2, 5, 11])
def test_starting_from_a_saved_state_is_the_same(
    encoder: HTSAT, features: Tensor, block: int
) -> None:
    tap = States(encoder.sites, {block})
    whole = encoder.encode(features, tap=tap)
    state = tap.states[block]
    assert state.block == block
    assert torch.equal(encoder.encode(None, start=state).latent, whole.latent)


def test_edits_replace_scale_and_transform(encoder: HTSAT, features: Tensor) -> None:
    site = encoder.sites[4]
    mlp = encoder.sites[5]
    plain = encoder.encode(features).latent
    same = encoder.encode(features, edit={(site, "raw"): lambda x: x * 1.0}).latent
    assert torch.equal(plain, same)
    tap = Everything()
    edit = {(site, "raw"): torch.zeros_like, (mlp, "out"): lambda x: 2 * x}
    changed = encoder.encode(features, tap=tap, edit=edit).latent
    assert not torch.allclose(plain, changed)
    assert (tap.get("raw", site) == 0).all()
    _, bias = encoder.output_projection(site)
    torch.testing.assert_close(tap.get("out", site), bias.expand_as(tap.get("out", site)))
    assert torch.equal(plain, encoder.encode(features).latent), "an edit must leave nothing behind"


def test_gradients_flow_through_edits(encoder: HTSAT, features: Tensor) -> None:
    site = encoder.sites[0]
    gain = torch.ones(site.n_heads, requires_grad=True)
    edit = {(site, "raw"): lambda x: x * gain[:, None]}
    encoder.encode(features, edit=edit).latent.square().sum().backward()
    assert gain.grad is not None
    assert (gain.grad != 0).all()


def test_an_edit_nowhere_is_an_error(encoder: HTSAT, features: Tensor) -> None:
    nowhere = Site(9, 0, "attention", 4, 4, 16)
    with pytest.raises(InputError, match=r"s9\.b0"):
        encoder.encode(features, edit={(nowhere, "raw"): torch.zeros_like})
    with pytest.raises(InputError, match="raw"):
        encoder.encode(features, edit={(encoder.sites[1], "raw"): torch.zeros_like})
    with pytest.raises(InputError, match="features"):
        encoder.encode(None)


def test_batch_and_order_do_not_matter(encoder: HTSAT, features: Tensor) -> None:
    together = encoder.encode(features).latent
    alone = torch.cat([encoder.encode(clip[None]).latent for clip in features])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    flipped = encoder.encode(features.flip(0)).latent.flip(0)
    torch.testing.assert_close(together, flipped, atol=1e-5, rtol=1e-5)


def test_large_batches_share_the_masks_of_a_few_clips(encoder: HTSAT) -> None:
    many = torch.randn(19, 250, 64, generator=torch.Generator().manual_seed(2))
    whole = encoder.encode(many).latent
    parts = torch.cat([encoder.encode(part).latent for part in many.split(6)])
    torch.testing.assert_close(whole, parts, atol=1e-5, rtol=1e-5)


def test_caches_of_inference_mode_serve_gradients(features: Tensor) -> None:
    encoder = randomised(HTSAT(SMALL), seed=3)
    with torch.inference_mode():
        encoder.encode(features)
    gain = torch.ones((), requires_grad=True)
    edit = {(encoder.sites[0], "raw"): lambda x: x * gain}
    encoder.encode(features, edit=edit).latent.sum().backward()
    assert gain.grad is not None


def test_masks_serve_fewer_and_more_clips(encoder: HTSAT) -> None:
    block = next(block for block in encoder.blocks if block.shifted)
    with torch.no_grad():
        block._bias_cache = None
        one = block.attention_bias(1).clone()
        for n_clips in (3, 1, 2, 5, 4):
            assert torch.equal(block.attention_bias(n_clips), one.repeat(n_clips, 1, 1, 1))


def test_bias_cache_follows_the_weights(features: Tensor) -> None:
    encoder = randomised(HTSAT(SMALL))
    before = encoder.encode(features).latent
    with torch.no_grad():
        encoder.blocks[0].bias_table.add_(1.5 * torch.randn(encoder.blocks[0].bias_table.shape))
    assert not torch.allclose(before, encoder.encode(features).latent)


def test_too_many_frames_are_refused(encoder: HTSAT) -> None:
    with pytest.raises(InputError, match="257 frames"):
        encoder.encode(torch.zeros(1, 257, 64))
    with pytest.raises(InputError, match="powers of two"):
        HTSATConfig(spec_size=192)


def test_every_stage_can_have_a_width_of_its_own(features: Tensor) -> None:
    config = HTSATConfig(embed_dim=16, window=4, spec_size=128, widths=(16, 48, 32, 64))
    assert HTSATConfig.from_dict(config.to_dict() | {"widths": [16, 48, 32, 64]}) == config
    wide = randomised(HTSAT(config))
    assert [site.width for site in wide.sites if site.block == 0][::2] == [16, 48, 32, 64]
    assert wide.encode(features).latent.shape == (3, 64)
    as_ever = HTSATConfig(embed_dim=16, window=4, spec_size=128, widths=(16, 32, 64, 128))
    same = HTSAT(as_ever)
    load_strict(same, randomised(HTSAT(SMALL)).state_dict(), "doubling widths")
    torch.testing.assert_close(
        same.eval().encode(features).latent, randomised(HTSAT(SMALL)).encode(features).latent
    )
    with pytest.raises(InputError, match="one for each of the 4 stages"):
        HTSATConfig(widths=(96, 192))
    with pytest.raises(InputError, match="first of them embed_dim"):
        HTSATConfig(widths=(64, 192, 384, 768))
    with pytest.raises(InputError, match="8 heads do not share a width of 100"):
        HTSATConfig(widths=(96, 100, 384, 768))


def test_state_carries_the_block_it_enters(encoder: HTSAT, features: Tensor) -> None:
    state = State(2, torch.zeros(1, 256, 32))
    assert encoder.encode(None, start=state).latent.shape == (1, 128)


def test_an_encoder_made_in_inference_mode_runs() -> None:
    with torch.inference_mode():
        encoder = HTSAT(
            HTSATConfig(embed_dim=8, depths=(2, 1), n_heads=(2, 2), window=4, spec_size=64)
        )
        found = encoder.eval().encode(torch.zeros(1, 64, 64)).latent
    assert found.isfinite().all()


def test_a_learned_bias_has_the_gradient_of_fused_attention() -> None:
    from residual_audio.models.block import scaled_attention

    source = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 5, 4, generator=source)
    bias = torch.randn(1, 3, 5, 5, generator=source, requires_grad=True)
    ours, _ = scaled_attention(q, k, v, bias, maps=False)
    (mine,) = torch.autograd.grad(ours.square().sum(), bias)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    (want,) = torch.autograd.grad(theirs.square().sum(), bias)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(mine, want)
