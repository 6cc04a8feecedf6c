"""Configs in our own layout that somebody wrote by hand: refused by name, never guessed at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from residual_audio.benchmarks.small_model import small_model
from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.models import native
from residual_audio.models.htsat import HTSATConfig
from residual_audio.models.text_small import SmallTextConfig


@pytest.mark.parametrize("wrong", [{"pool": "median"}, {"pool": 5}, {"norm_eps": 1e308}])
def test_an_encoder_that_is_none(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="not built"):
        HTSATConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"depth": 10**12}, {"width": -1}, {"vocabulary": 1e308}, {"mlp_ratio": 1e308}]
)
def test_a_text_tower_that_is_none(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"text tower: {next(iter(wrong))}"):
        SmallTextConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("front_end", "log", "log2"),
        ("front_end", "n_frames", "x"),
        ("front_end", "window", 5),
        ("", "trained_on", 5),
        ("", "trained_on", [5]),
        ("", "trained_on", [{"x": 1}]),
    ],
)
def test_a_folder_whose_config_was_changed_by_hand(
    tmp_path: Path, part: str, name: str, value: object
) -> None:
    native.save(small_model(), tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    if part:
        config[part][name] = value
    else:
        config[name] = value
    path.write_text(json.dumps(config))
    with pytest.raises(ResidualAudioError, match=rf"config\.json.*{name}"):
        native.load(tmp_path / "model")
