"""A data set written out is read back bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from residual_audio.cli import datasets as command
from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError

RATE = 32_000


@pytest.mark.parametrize("kind", ["classes", "order", "attribute"])
def test_make_writes_what_is_read_back_bit_for_bit(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "made"
    arguments = ["make", "synthetic", "--out", str(out), "--n", "6", "--seed", "9", "--kind", kind]
    result = CliRunner().invoke(command.app, [*arguments, "--duration-s", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["n_clips"] == 6
    data = load_dataset("synthetic", n_clips=6, seed=9, kind=kind, duration_s=1.0)
    again = load_dataset("manifest", out)
    assert [c.captions for c in again.clips] == [c.captions for c in data.clips]
    assert [(c.label, c.fold, c.group) for c in again.clips] == [
        (c.label, c.fold, c.group) for c in data.clips
    ]
    for clip, made in zip(again.clips, data.clips, strict=True):
        np.testing.assert_array_equal(again.read(clip, RATE), data.read(made, RATE))
    if kind != "classes":
        read = load_dataset(f"compa-{kind}", out)
        assert [p.captions for p in read.pairs] == [p.captions for p in data.pairs]
    assert not list(out.rglob(".*"))
    with pytest.raises(InputError, match="not an empty folder"):
        CliRunner().invoke(command.app, arguments, catch_exceptions=False)
