"""The direct path is an exact decomposition of the pooled latent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_model import CONFIG

from residual_audio.capture.capture_settings import CaptureSettings, SamplePlan
from residual_audio.capture.direct_pools import compose
from residual_audio.capture.recorder import Recorder
from residual_audio.errors import ModelError
from residual_audio.models.htsat import HTSAT, HTSATConfig

SMALL = replace(CONFIG, spec_size=64)


def random_encoder(config: HTSATConfig, dtype: torch.dtype) -> HTSAT:
    """Every parameter random, norms and biases too, so that no term of the algebra is trivial."""
    torch.manual_seed(0)
    encoder = HTSAT(config).to(dtype)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.normal_(1.0, 0.3)
            elif parameter.ndim == 1:
                parameter.normal_(0.0, 0.3)
            else:
                parameter.normal_(0.0, 1.5 / parameter[0].numel() ** 0.5)
    return encoder.eval()


def log_mel(config: HTSATConfig, n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(n, config.n_frames - 3, config.n_mels, dtype=dtype)


def decompose(encoder: HTSAT, arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Every term of the sum, by name."""
    found = {name: torch.from_numpy(array) for name, array in arrays.items()}
    fixed = encoder.direct_path().steps
    maps = compose(fixed.steps)
    terms = {"embedding": found["direct/embedding"], "final": fixed.final}
    for site in encoder.sites:
        if site.kind == "mlp":
            terms[str(site)] = found[f"direct/{site}"]
            continue
        weight, bias = encoder.output_projection(site)
        slots = maps[site.stage]
        pools = found[f"direct/{site}"].unflatten(2, (len(slots), site.d_head))
        rows = weight.detach().unflatten(0, (site.n_heads, site.d_head))
        for head in site.heads:
            terms[str(head)] = torch.einsum(
                "csd,dw,swl->cl", pools[:, head.head], rows[head.head], slots
            )
        sums = found[f"direct/weights/s{site.stage}"]
        terms[f"{site} bias"] = torch.einsum("cs,w,swl->cl", sums, bias.detach(), slots)
    for stage, entry in enumerate(fixed.entry):
        if entry is not None:
            sums = found[f"direct/weights/s{stage}"]
            terms[f"merge {stage}"] = torch.einsum("cs,w,swl->cl", sums, entry, maps[stage])
    return terms


@pytest.mark.parametrize(
    ("config", "dtype", "tolerance"),
    [
        (SMALL, torch.float32, 1e-5),
        (SMALL, torch.float64, 1e-10),
        (replace(SMALL, widths=(8, 24, 20, 32)), torch.float64, 1e-10),
    ],
)
def test_contributions_sum_to_latent(
    config: HTSATConfig, dtype: torch.dtype, tolerance: float
) -> None:
    encoder = random_encoder(config, dtype)
    plan = SamplePlan(3, CaptureSettings.of("direct"))
    arrays = Recorder(encoder, plan).run(log_mel(config, 3, dtype))
    terms = decompose(encoder, arrays)
    latent = torch.from_numpy(arrays["embedding/latent"])
    total = sum(term.expand_as(latent) for term in terms.values())
    error = (total - latent).norm(dim=1) / latent.norm(dim=1)
    assert error.max() < tolerance
    # none of the terms is negligible, or leaving it out would not be noticed
    smallest = min(float(term.norm() / latent.norm()) for term in terms.values())
    assert smallest > 100 * tolerance


def test_pools_are_explicit_sums() -> None:
    """One head's contribution equals pushing its projected tokens through the frozen norms."""
    encoder = random_encoder(SMALL, torch.float64)
    features = log_mel(SMALL, 2, torch.float64)
    kept: dict = {}

    class Keep:
        points = frozenset({"raw", "scale"})

        def __call__(self, point, where, value):
            kept[where, point] = value

    with torch.inference_mode():
        encoder.encode(features, tap=Keep())
        site = next(s for s in encoder.sites if s.stage == 1 and s.kind == "attention")
        weight, _ = encoder.output_projection(site)
        head = 2
        rows = weight[head * site.d_head : (head + 1) * site.d_head]
        x = kept[site, "raw"][:, :, head] @ rows  # clip token width
        for stage in range(site.stage, 3):
            merge = encoder.merges[stage]
            x = x.reshape(2, x.shape[1] // 4, -1)
            x = (x - x.mean(-1, keepdim=True)) * kept[stage, "scale"][..., None]
            x = (x * merge.norm.weight) @ merge.reduction.weight.T
        x = (x - x.mean(-1, keepdim=True)) * kept[3, "scale"][..., None] * encoder.norm.weight
    arrays = Recorder(encoder, SamplePlan(2, CaptureSettings.of("direct"))).run(features)
    terms = decompose(encoder, arrays)
    assert torch.allclose(terms[str(site.heads[head])], x.mean(1), rtol=1e-10, atol=1e-12)


def test_size_at_tiny() -> None:
    """29,184 floats a clip for the 184 heads of HTS-AT tiny."""
    config = HTSATConfig()
    slots = [4 ** (3 - s) for s in range(4)]
    width = [config.width(s) for s in range(4)]
    assert sum(slots[s] * width[s] * config.depths[s] for s in range(4)) == 29_184


def test_an_encoder_whose_latent_is_no_mean_has_no_direct_path() -> None:
    config = HTSATConfig(**{**SMALL.__dict__, "value_path": True})
    with pytest.raises(ModelError, match="mean of the final tokens"):
        HTSAT(config).direct_path()
