"""The ViT encoder: the laws of taps, edits, saved states, chunks and the direct path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from residual_audio.capture.direct_pools import compose
from residual_audio.errors import InputError
from residual_audio.models.encoder import Edit, State, States
from residual_audio.models.joint import Semantic
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.types import Site

M2D = ViTConfig(
    width=24,
    depth=3,
    n_heads=4,
    hidden=48,
    n_mels=16,
    n_frames=21,
    norm_eps=1e-6,
    patch=(4, 4),
    stride=(4, 4),
    n_special=1,
    chunks=True,
)
KINDS = {
    "m2d": M2D,
    "stacked": replace(M2D, pool="stack"),
    "ast": replace(M2D, stride=(3, 3), n_special=2, pool="special", chunks=False),
    "whisper": replace(M2D, stem="conv", n_special=0, chunks=False, n_frames=20),
}


def build(config: ViTConfig, seed: int = 0) -> ViT:
    encoder = ViT(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in encoder.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = 0.3 * noise if parameter.ndim > 1 else 0.7 + 0.2 * noise
    return encoder.eval().requires_grad_(False)


def log_mels(config: ViTConfig, n_frames: int | None = None, n_clips: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n_clips, n_frames or config.n_frames, config.n_mels, generator=generator)


@pytest.fixture(params=[*KINDS, "long"])
def case(request: pytest.FixtureRequest) -> tuple[ViT, Tensor]:
    """An encoder and clips for it; `long` is a clip of two chunks and a bit."""
    config = KINDS.get(request.param, M2D)
    return build(config), log_mels(config, 49 if request.param == "long" else None)


class Everything:
    def __init__(self, *points: str) -> None:
        self.points = frozenset(points or ("stream", "raw", "out", "end", "scale"))
        self.seen: dict[tuple[str, Site | int], Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        self.seen[point, where] = value


def test_taps_add_up_to_the_stream(case: tuple[ViT, Tensor]) -> None:
    encoder, features = case
    tap = Everything()
    encoded = encoder.encode(features, tap=tap)
    torch.testing.assert_close(encoded.latent, encoder(features), atol=1e-6, rtol=0)
    stream = tap.seen["stream", encoder.sites[0]]
    for site in encoder.sites:
        out = tap.seen["out", site]
        if site.kind == "attention":
            torch.testing.assert_close(tap.seen["stream", site], stream, atol=1e-5, rtol=0)
            weight, bias = encoder.output_projection(site)
            heads = weight.unflatten(0, (site.n_heads, site.d_head))
            total = torch.einsum("cthd,hdw->ctw", tap.seen["raw", site], heads) + bias
            torch.testing.assert_close(total, out, atol=1e-5, rtol=0)
        stream = stream + out
    torch.testing.assert_close(tap.seen["end", 0], stream, atol=1e-5, rtol=0)
    deviation = stream.var(-1, unbiased=False) + encoder.config.norm_eps
    torch.testing.assert_close(tap.seen["scale", 0], deviation.rsqrt(), atol=1e-5, rtol=1e-5)


def test_maps_are_what_the_fused_attention_does(case: tuple[ViT, Tensor]) -> None:
    encoder, features = case
    tap = Everything("maps", "raw")
    encoded = encoder.encode(features, tap=tap)
    torch.testing.assert_close(encoded.latent, encoder(features), atol=1e-5, rtol=0)
    n_tokens = tap.seen["raw", encoder.sites[0]].shape[1]
    sizes = encoder.layout.chunks(n_tokens)
    chunk = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    apart = chunk[:, None] != chunk[None]
    for site in encoder.sites[::2]:
        maps = tap.seen["maps", site]
        assert maps.shape == (2, 1, site.n_heads, n_tokens, n_tokens)
        torch.testing.assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]))
        assert not maps[..., apart].any()


def test_no_edit_and_identity_edits_change_nothing(case: tuple[ViT, Tensor]) -> None:
    encoder, features = case
    wanted = encoder(features)
    points = [(s, p) for s in encoder.sites for p in ("raw", "out")]
    edit: Edit = {(s, p): lambda x: x for s, p in points if p == "out" or s.kind == "attention"}
    assert torch.equal(encoder.encode(features, edit=edit).latent, wanted)
    assert not torch.allclose(encoder.encode(features, edit=silence(encoder, 1)).latent, wanted)


def silence(encoder: ViT, block: int) -> Edit:
    """Head 2 of a block gives 0."""

    def change(heads: Tensor) -> Tensor:
        keep = torch.ones(heads.shape[2], 1)
        keep[2] = 0
        return heads * keep

    return {(encoder.sites[2 * block], "raw"): change}


def test_starts_from_any_saved_state(case: tuple[ViT, Tensor]) -> None:
    encoder, features = case
    edit = silence(encoder, 2)
    tap = States(encoder.sites, {0, 1, 2})
    encoder.encode(features, tap=tap)
    wanted = encoder.encode(features, edit=edit).latent
    for block in range(3):
        got = encoder.encode(None, edit=edit, start=tap.states[block]).latent
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=0)


def test_gradients_flow_through_edits(case: tuple[ViT, Tensor]) -> None:
    encoder, features = case
    with torch.inference_mode():  # a pass before must not leave anything that autograd refuses
        encoder(features)
    site = encoder.sites[2]
    gain = torch.ones(site.n_heads, 1, requires_grad=True)

    def loss(gain: Tensor) -> Tensor:
        return encoder.encode(features, edit={(site, "raw"): lambda h: h * gain}).latent.sum()

    (gradient,) = torch.autograd.grad(loss(gain), gain)
    for head in range(site.n_heads):
        step = torch.zeros_like(gain)
        step[head] = 1e-2
        slope = (loss(gain.detach() + step) - loss(gain.detach() - step)) / 2e-2
        torch.testing.assert_close(gradient[head, 0], slope, atol=2e-2, rtol=2e-2)


def test_direct_path_adds_up_to_the_latent(case: tuple[ViT, Tensor]) -> None:
    encoder, features = case
    encoder, features = encoder.double(), features.double()
    tap = Everything()
    latent = encoder.encode(features, tap=tap).latent
    path = encoder.direct_path()
    (maps,) = compose(path.steps.steps)  # slot width latent
    (weights,) = path.weights({0: tap.seen["scale", 0]})
    total = path.steps.final.expand(latent.shape).clone()
    added = [tap.seen["stream", encoder.sites[0]], *(tap.seen["out", s] for s in encoder.sites)]
    for value in added:
        total += torch.einsum("cis,cisw,swd->cd", weights, path.view(0, value), maps)
    torch.testing.assert_close(total, latent, atol=1e-12, rtol=0)


def test_stacked_latent_averages_to_the_flat_one() -> None:
    features = log_mels(M2D, 49)
    flat, stacked = build(M2D)(features), build(KINDS["stacked"])(features)
    assert stacked.shape == (2, 4 * M2D.width)
    torch.testing.assert_close(stacked.view(2, 4, -1).mean(1), flat, atol=1e-5, rtol=0)


def test_a_long_clip_is_its_chunks_side_by_side() -> None:
    encoder, features = build(M2D), log_mels(M2D, 49)
    whole = encoder.encode(features)
    parts = [encoder.encode(x) for x in (features[:, :21], features[:, 21:42], features[:, 42:])]
    assert [p.tokens.shape[1] for p in parts] == [20, 20, 8]
    torch.testing.assert_close(
        whole.tokens, torch.cat([p.tokens for p in parts], 1), atol=1e-5, rtol=0
    )
    assert whole.special is not None
    assert whole.special.shape[1] == 3


@pytest.mark.parametrize("n_frames", [1, 3, 4, 5, 18, 20, 21, 22, 41, 42, 43, 63])
def test_any_length_is_read(n_frames: int) -> None:
    """Frames missing from the last patch count as average level; the table is cut by rows."""
    encoder, features = build(M2D), log_mels(M2D, n_frames)
    encoded = encoder.encode(features)
    full, rest = divmod(n_frames, 21)
    columns = 5 * full + min(-(-rest // 4), 5)
    assert encoded.tokens.shape[1] == 4 * columns
    places = encoder.time_frequency(0, 4 * columns + full + bool(rest))
    assert int(places[:, 0].max()) + 1 == columns
    assert (places >= 0).all(1).sum() == 4 * columns


def test_embedding_of_a_short_clip_by_hand() -> None:
    encoder, features = build(M2D), log_mels(M2D, 6)
    padded = torch.nn.functional.pad(features, (0, 0, 0, 2))
    found = encoder.embed(features)
    table = encoder.positions[1:].view(4, 5, -1)
    for row in range(4):
        for column in range(2):
            patch = padded[:, 4 * column : 4 * column + 4, 4 * row : 4 * row + 4]
            kernel = encoder.stem.conv.weight[:, 0]  # width mel frame
            value = torch.einsum("cfm,wmf->cw", patch, kernel) + encoder.stem.conv.bias
            wanted = value + table[row, column]
            torch.testing.assert_close(found[:, 1 + 2 * row + column], wanted, atol=1e-5, rtol=0)
    assert encoder.special is not None
    torch.testing.assert_close(found[0, 0], encoder.special[0] + encoder.positions[0])


def test_same_clip_in_any_batch(case: tuple[ViT, Tensor]) -> None:
    encoder, features = case
    more = torch.cat([log_mels(encoder.config, features.shape[1], 5) + 1, features])
    torch.testing.assert_close(encoder(more)[-2:], encoder(features), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda e: e(torch.randn(1, 20, 16)),
        lambda e: e(torch.randn(1, 21, 15)),
        lambda e: e((torch.randn(1, 4, 21, 16), torch.tensor([True]))),
        lambda e: e.encode(None),
        lambda e: e.encode(None, start=State(1, torch.randn(1, 8, 24))),
        lambda e: e.encode(None, edit={(Site(1, 0, "attention", 4, 6, 24), "raw"): torch.relu}),
    ],
)
def test_refuses_what_does_not_fit(call: Callable[[ViT], object]) -> None:
    with pytest.raises(InputError):
        call(build(KINDS["ast"]))


@pytest.mark.parametrize(
    "wrong", [{"n_heads": 5}, {"n_mels": 3}, {"n_special": 0, "pool": "special"}]
)
def test_refuses_impossible_sizes(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        replace(M2D, **wrong)


def test_config_survives_json() -> None:
    values = {**M2D.to_dict(), "patch": [4, 4], "stride": [4, 4]}
    assert ViTConfig.from_dict(values) == M2D


def test_semantic_head_reads_every_patch() -> None:
    head = Semantic(24, 24, 2)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    patches = torch.randn(2, 9, 24)
    order = torch.randperm(9)
    torch.testing.assert_close(head.read(patches), head.read(patches[:, order]), atol=1e-5, rtol=0)
    patches[0, 3] += 1
    assert not torch.allclose(head.read(patches)[0], head.read(patches[:, :3])[0], atol=1e-4)
