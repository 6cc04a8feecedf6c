"""Every kind of capture against the full tensors it summarises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_model import CONFIG as TINY

from residual_audio.capture.capture_settings import KINDS, CaptureSettings, SamplePlan
from residual_audio.capture.recorder import Recorder, fit_maps, probe_maps
from residual_audio.capture.tokens import grid_order, variance_split
from residual_audio.errors import InputError
from residual_audio.metrics.moments import Moments, merge_all
from residual_audio.metrics.spectra import isometry
from residual_audio.models.htsat import HTSAT

CONFIG = replace(TINY, spec_size=64)


class Keep:
    """Every tapped tensor, whole."""

    points = frozenset({"stream", "raw", "maps", "out", "end", "scale"})

    def __init__(self) -> None:
        self.kept: dict = {}

    def __call__(self, point, where, value) -> None:
        self.kept[where, point] = value


@pytest.fixture(scope="module")
def encoder() -> HTSAT:
    torch.manual_seed(0)
    built = HTSAT(CONFIG).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(
                0.0, 0.5 if parameter.ndim == 1 else 1.2 / parameter[0].numel() ** 0.5
            )
    return built


@pytest.fixture(scope="module")
def features() -> torch.Tensor:
    return torch.randn(
        5, CONFIG.n_frames, CONFIG.n_mels, generator=torch.Generator().manual_seed(1)
    )


@pytest.fixture(scope="module")
def whole(encoder: HTSAT, features: torch.Tensor) -> dict:
    keep = Keep()
    with torch.inference_mode():
        encoder.encode(features, tap=keep)
    return keep.kept


@pytest.fixture(scope="module")
def captured(encoder: HTSAT, features: torch.Tensor) -> dict[str, np.ndarray]:
    plan = SamplePlan(5, CaptureSettings.of("all", n_token_clips=2, n_maps=3))
    return Recorder(encoder, plan).run(features, joint=lambda encoded: encoded.latent[:, :3])


def assert_close(a: np.ndarray, b: torch.Tensor, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(a, b.numpy(), rtol=tolerance, atol=tolerance)


def test_heads_are_token_means(encoder, captured, whole) -> None:
    for site in encoder.sites:
        if site.kind == "attention":
            assert_close(captured[f"heads/{site}"], whole[site, "raw"].mean(1))


def test_parts_on_several_cores_give_the_rows_of_one_run(encoder, features, captured) -> None:
    plan = SamplePlan(5, CaptureSettings.of("all", n_token_clips=2, n_maps=3))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    recorder = Recorder(encoder, plan)
    batches = [(features, range(5))]
    parts = list(recorder.stream(batches, lambda x: x, lambda encoded: encoded.latent[:, :3]))
    torch.set_num_threads(before)
    assert [list(clips) for clips, _ in parts] == [[0, 1, 2, 3], [4]]  # four clips a job
    for name, want in captured.items():
        if len(want.shape) and len(want) == 5 and not name.endswith("_at"):
            found = np.concatenate([arrays[name] for _, arrays in parts])
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5, err_msg=name)
    at = f"moments/{encoder.sites[0]}"
    moments = [Moments(int(a[f"{at}/n"]), a[f"{at}/mean"], a[f"{at}/scatter"]) for _, a in parts]
    np.testing.assert_allclose(
        merge_all(moments).mean, captured[f"{at}/mean"], rtol=1e-4, atol=1e-5
    )


def test_projected_heads_sum_to_the_attention_output(encoder, captured) -> None:
    for site in encoder.sites:
        if site.kind == "attention":
            weight, bias = (x.detach().numpy() for x in encoder.output_projection(site))
            total = captured[f"heads/{site}"].reshape(5, -1) @ weight + bias
            out = captured[f"blocks/s{site.stage}.b{site.block}/attention"]
            np.testing.assert_allclose(total, out, rtol=1e-4, atol=1e-5)


def test_stage_stream_is_start_plus_what_was_added(encoder, captured) -> None:
    for stage, depth in enumerate(CONFIG.depths):
        total = captured[f"blocks/s{stage}.b0/stream"].astype(np.float64)
        for block in range(depth):
            for part in ("attention", "mlp"):
                total = total + captured[f"blocks/s{stage}.b{block}/{part}"]
        np.testing.assert_allclose(total, captured[f"stages/s{stage}"], rtol=1e-4, atol=1e-5)


def test_moments_equal_those_of_all_tokens_and_merge(encoder, features, captured, whole) -> None:
    plan = SamplePlan(5, CaptureSettings.of("moments"))
    recorder = Recorder(encoder, plan)
    parts = [recorder.run(features[:2]), recorder.run(features[2:])]
    for site in encoder.sites:
        if site.kind != "attention":
            continue
        name = f"moments/{site}"
        x = whole[site, "raw"].double().flatten(0, 1).transpose(0, 1).numpy()  # head token d
        explicit = Moments.of(x)
        merged = merge_all(
            Moments(int(p[f"{name}/n"]), p[f"{name}/mean"], p[f"{name}/scatter"]) for p in parts
        )
        assert merged.n == explicit.n == int(captured[f"{name}/n"])
        for found in (merged.scatter, captured[f"{name}/scatter"]):
            assert found.dtype == np.float64
            # float32 head outputs differ by rounding between batch sizes and with explicit maps
            np.testing.assert_allclose(found, explicit.scatter, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(merged.mean, explicit.mean, rtol=1e-4, atol=1e-5)


def test_projected_spectra_follow_from_d_head_algebra(encoder, captured) -> None:
    """cov(R W) has the spectrum of Lᵀ cov(R) L; distances of R W are those of R L."""
    for site in encoder.sites:
        if site.kind != "attention":
            continue
        weight = encoder.output_projection(site)[0].detach().double().numpy()
        for head in range(site.n_heads):
            rows = weight[head * site.d_head : (head + 1) * site.d_head]
            raw = captured[f"heads/{site}"][:, head].astype(np.float64)
            explicit = np.linalg.eigvalsh(np.cov(raw @ rows, rowvar=False))[-site.d_head :]
            root = isometry(rows)
            small = np.linalg.eigvalsh(root.T @ np.cov(raw, rowvar=False) @ root)
            np.testing.assert_allclose(small, explicit, atol=1e-10 * explicit.max())
            short = raw @ root
            far = np.linalg.norm((raw @ rows)[:, None] - (raw @ rows)[None], axis=-1)
            near = np.linalg.norm(short[:, None] - short[None], axis=-1)
            np.testing.assert_allclose(near, far, atol=1e-10 * far.max())


def test_attention_statistics(encoder, captured, whole) -> None:
    for site in encoder.sites:
        if site.kind != "attention":
            continue
        maps = whole[site, "maps"]  # clip window head query key
        assert torch.allclose(maps.sum(-1), torch.ones(()), atol=1e-5)
        entropy = -(maps * maps.clamp(min=1e-30).log()).sum(-1).mean((1, 3))
        assert_close(captured[f"attention/{site}/entropy"], entropy, 1e-4)
        grid = encoder.window_grid(site.stage, maps.shape[-1]).float()
        delta = grid[:, None] - grid[None]
        for name, steps in (
            ("distance", delta.norm(dim=-1)),
            ("distance_cols", delta[..., 0].abs()),
            ("distance_rows", delta[..., 1].abs()),
        ):
            assert_close(
                captured[f"attention/{site}/{name}"], (maps * steps).sum(-1).mean((1, 3)), 1e-4
            )
        kept = captured[f"attention/{site}/maps"]
        at = captured[f"attention/{site}/maps_at"]
        assert len(at) == len(kept) == 3
        for (row, window), found in zip(at, kept, strict=True):
            assert_close(found.astype(np.float32), maps[row, window], 1e-3)


def test_same_maps_for_all_blocks_of_a_stage(captured) -> None:
    first, second = (captured[f"attention/s0.b{block}.attention/maps_at"] for block in (0, 1))
    assert (first == second).all()


def test_fewer_clips_than_maps_take_several_windows(encoder, features) -> None:
    plan = SamplePlan(2, CaptureSettings.of("attention", n_maps=7))
    found = Recorder(encoder, plan).run(features[:2])
    at = found["attention/s0.b0.attention/maps_at"]
    assert len(at) == 8
    assert len({tuple(pair) for pair in at.tolist()}) == 8
    # the last stage has one window a clip: everything there is, and no more
    assert found["attention/s3.b0.attention/maps_at"].tolist() == [[0, 0], [1, 0]]


def test_maps_fit_their_budget(encoder, features) -> None:
    shapes = probe_maps(encoder, features[:1])
    one = sum(2 * int(np.prod(shape)) for shape in shapes.values())
    settings = CaptureSettings.of("attention", n_maps=10, map_bytes=4 * one + 1)
    assert fit_maps(settings, shapes).n_maps == 4
    assert fit_maps(CaptureSettings.of("attention", n_maps=10), shapes).n_maps == 10


def test_sample_does_not_depend_on_batches(encoder, features, captured) -> None:
    plan = SamplePlan(5, CaptureSettings.of("all", n_token_clips=2, n_maps=3))
    recorder = Recorder(encoder, plan)
    parts = [recorder.run(features[i : i + 1], clips=[i]) for i in range(5)]
    for name in ("tokens/s1.b0.attention/sample", "attention/s1.b0.attention/maps"):
        joined = np.concatenate([part[name] for part in parts])
        np.testing.assert_allclose(joined, captured[name], atol=2e-3, rtol=2e-3)
    at = [i for i in range(5) for _ in parts[i]["tokens/s1.b0.attention/sample_at"]]
    assert at == captured["tokens/s1.b0.attention/sample_at"].tolist()
    for name, array in captured.items():
        if array.shape[:1] == (5,) and name.split("/")[0] not in ("moments", "embedding"):
            joined = np.concatenate([part[name] for part in parts])
            scale = np.abs(array).max()
            np.testing.assert_allclose(joined, array, atol=2e-5 * scale, err_msg=name)


def test_token_split_is_an_exact_partition(encoder, captured, whole) -> None:
    for site in encoder.sites:
        if site.kind != "attention":
            continue
        raw = whole[site, "raw"].double()  # clip token head d_head
        within = (raw - raw.mean(1, keepdim=True)).square().sum(-1).mean(1)
        split = captured[f"tokens/{site}/split"]
        np.testing.assert_allclose(split.sum(-1), within.numpy(), rtol=1e-4)


def test_token_split_sees_time_and_frequency() -> None:
    grid = torch.zeros(1, 6, 3, 1, 2)
    grid[..., 0] = torch.arange(6.0)[:, None, None]  # varies over time only
    assert variance_split(grid)[0, 0].tolist() == pytest.approx([35 / 12, 0, 0])
    grid = torch.zeros(1, 6, 3, 1, 2)
    grid[..., 1] = torch.arange(3.0)[None, :, None]
    assert variance_split(grid)[0, 0].tolist() == pytest.approx([0, 2 / 3, 0])


def test_true_time_and_frequency_of_the_fold(encoder) -> None:
    """A step of the log-mel at one frame and one mel lands on the token said to be there."""
    side, fold = CONFIG.grid(0), CONFIG.spec_size // CONFIG.n_mels
    places = encoder.time_frequency(0, side * side)
    _, n_times, n_frequencies = grid_order(places)
    assert (n_times, n_frequencies) == (side * fold, side // fold)
    probe = HTSAT(CONFIG).eval()
    with torch.no_grad():
        probe.patch.weight.fill_(1.0)
        probe.patch.bias.zero_()
        for frame, mel in ((0, 0), (100, 3), (255, 15), (130, 9)):
            mels = torch.zeros(1, CONFIG.n_frames, CONFIG.n_mels)
            mels[0, frame, mel] = 1.0
            image = probe.patch(probe.image(mels)).flatten(2)[0, 0].index_select(0, probe.order)
            token = int(image.abs().argmax())
            assert places[token].tolist() == [frame // CONFIG.patch, mel // CONFIG.patch]


def test_token_sample_is_averaged_down(encoder, captured, whole) -> None:
    plan = SamplePlan(5, CaptureSettings.of("tokens", n_token_clips=5, token_grid=(16, 4)))
    features = torch.randn(2, CONFIG.n_frames, CONFIG.n_mels)
    found = Recorder(encoder, plan).run(features)["tokens/s0.b0.attention/sample"]
    assert found.shape == (2, 2, 16, 4, 4)
    keep = Keep()
    with torch.inference_mode():
        encoder.encode(features, tap=keep)
    site = encoder.sites[0]
    places = encoder.time_frequency(0, 1024)
    block = ((places[:, 0] // 8 == 3) & (places[:, 1] // 2 == 1)).nonzero()[:, 0]
    assert_close(
        found[:, :, 3, 1].astype(np.float32), keep.kept[site, "raw"][:, block].mean(1), 5e-3
    )


def test_kinds_by_name() -> None:
    assert CaptureSettings.of("direct, heads").kinds == ("embedding", "heads", "direct")
    assert CaptureSettings.of(["all"]).kinds == KINDS
    with pytest.raises(InputError, match="'hats'"):
        CaptureSettings.of("heads,hats")
    with pytest.raises(InputError, match="n_maps"):
        CaptureSettings.of("attention", n_maps=0)
    assert CaptureSettings.of("heads", n_maps=5).to_dict() == CaptureSettings.of("heads").to_dict()
