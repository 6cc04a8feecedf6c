"""Autoencoders as SAELens writes them: our reading gives what SAELens gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from residual_audio.atlas.autoencoder_files import CONFIG, WEIGHTS, is_autoencoder, read_autoencoder
from residual_audio.errors import InputError

WRITTEN = Path(__file__).parent / "saelens"
KINDS = ("standard", "standard-norm", "topk", "topk-rescaled", "jumprelu", "gated")


@pytest.mark.parametrize("kind", KINDS)
def test_units_are_as_active_as_saelens_says(kind: str) -> None:
    expected = load_file(WRITTEN / "expected.safetensors")
    held = read_autoencoder(WRITTEN / kind)
    active = held.encode(expected["x"])
    np.testing.assert_allclose(active, expected[f"active/{kind}"], atol=2e-6)
    assert ((active > 0) == (expected[f"active/{kind}"] > 0)).all()
    made = held.decode(active, expected["x"])
    np.testing.assert_allclose(made, expected[f"out/{kind}"], atol=5e-6)


def test_a_folder_and_its_weights_are_the_same(tmp_path: Path) -> None:
    assert is_autoencoder(WRITTEN / "topk")
    assert is_autoencoder(WRITTEN / "topk" / WEIGHTS)
    assert not is_autoencoder(WRITTEN)
    assert not is_autoencoder(WRITTEN / "expected.safetensors")


def changed(tmp_path: Path, kind: str, **settings: object) -> Path:
    folder = Path(shutil.copytree(WRITTEN / kind, tmp_path / "sae"))
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **settings}))
    return folder


def test_a_config_of_before_version_6(tmp_path: Path) -> None:
    folder = changed(
        tmp_path, "topk", architecture="standard", k=None,
        activation_fn_str="topk", activation_fn_kwargs={"k": 3},
    )  # fmt: skip
    expected = load_file(WRITTEN / "expected.safetensors")
    found = read_autoencoder(folder).encode(expected["x"])
    np.testing.assert_allclose(found, expected["active/topk"], atol=2e-6)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"architecture": "temporal"}, "'temporal' of SAELens"),
        ({"activation_fn": "tanh-relu"}, "with tanh-relu"),
        ({"reshape_activations": "hook_z"}, "single heads"),
        ({"k": 0}, "k is 0"),
        ({"k": 21}, "k is 21"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    tmp_path: Path, settings: dict[str, object], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        read_autoencoder(changed(tmp_path, "topk", **settings))


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = changed(tmp_path, "jumprelu")
    whole = load_file(folder / WEIGHTS)
    without = {name: value for name, value in whole.items() if name != "threshold"}
    save_file(without, folder / WEIGHTS)
    with pytest.raises(InputError, match="has no threshold"):
        read_autoencoder(folder)
    save_file({**whole, "b_enc": whole["b_enc"][:-1].copy()}, folder / WEIGHTS)
    with pytest.raises(InputError, match="b_enc is 19"):
        read_autoencoder(folder)
    save_file({**whole, "b_dec": np.full(12, np.nan, np.float32)}, folder / WEIGHTS)
    with pytest.raises(InputError, match="b_dec holds NaN"):
        read_autoencoder(folder)
    (folder / WEIGHTS).write_bytes(b"no weights")
    with pytest.raises(InputError, match="sae_weights"):
        read_autoencoder(folder)
