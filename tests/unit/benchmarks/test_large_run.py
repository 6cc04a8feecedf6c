"""The run for benches is of a real one's size."""

from __future__ import annotations

import torch

from residual_audio.benchmarks.large_run import WIDTH, wide_model


def test_heads_and_widths_of_the_smallest_model_in_use() -> None:
    model = wide_model()
    sites = [site for site in model.encoder.sites if site.kind == "attention"]
    assert sum(site.n_heads for site in sites) == 184
    assert {site.d_head for site in sites} == {24}
    assert model.encoder.config.latent == 768
    assert model.text is not None
    one, two = model.text(["a dog", "rain"])
    assert one.shape == (WIDTH,)
    assert torch.equal(model.text(["rain"])[0], two)
