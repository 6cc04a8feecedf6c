"""A layout that cannot say what a model is refuses it, and says what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_clap import save_small_clap

from residual_audio.errors import ModelError
from residual_audio.models.frontends import build_front_end
from residual_audio.models.layouts import write_model
from residual_audio.models.registry import load_model


@pytest.mark.parametrize(
    ("layout", "changed", "expected"),
    [
        ("laion", {"sample_rate_hz": 32_000}, r"sample_rate_hz 32000 \(there: 48000\)"),
        ("laion", {"log_eps": 1e-6}, r"log_eps 1e-06 \(there: 1e-10\)"),
        ("hf", {"log_eps": 1e-6}, r"log_eps 1e-06 \(there: 1e-10\)"),
        ("hf", {"short": "keep"}, "'keep'"),
    ],
)
def test_a_front_end_that_the_layout_cannot_say_is_refused(
    tmp_path: Path, layout: str, changed: dict, expected: str
) -> None:
    model = load_model(f"hf:{save_small_clap(tmp_path / 'clap')}", device="cpu")
    model.front_end = build_front_end(replace(model.spec, **changed))
    out = tmp_path / "out.pt"
    with pytest.raises(ModelError, match=expected):
        write_model(model, out, layout)
    assert not out.exists()


@pytest.mark.parametrize("layout", ["laion", "hf"])
def test_the_bundled_model_has_no_counterpart_elsewhere(tmp_path: Path, layout: str) -> None:
    with pytest.raises(ModelError, match="--to native"):
        write_model(load_model("nano", device="cpu"), tmp_path / "out.pt", layout)
