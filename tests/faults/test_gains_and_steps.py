"""Gains, steps of a run, locks: damage is found or healed, and what is said is what is so."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock

from residual_audio.errors import InputError, StoreError
from residual_audio.pipeline.steps import Done, Steps
from residual_audio.progress import SILENT
from residual_audio.reweight.gain_files import load_gains, save_gains
from residual_audio.seals import SUMS
from residual_audio.store.lock import NAME, writing
from residual_audio.training.recipe import TextRecipe
from residual_audio.training.text_stage import run_text_stage
from residual_audio.types import Gains, Spectrum


@pytest.fixture
def gains(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    spectra = {
        f"s0.b0.h{i}": Spectrum(rng.normal(size=4), np.eye(4), np.arange(4.0, 0, -1), 100)
        for i in range(3)
    }
    values = {unit: rng.normal(1, 0.1, 4).astype(np.float32) for unit in spectra}
    return save_gains(Gains(values, spectra), tmp_path / "gains" / "x")


def test_every_flipped_bit_of_gains_is_found(gains: Path) -> None:
    load_gains(gains)
    rng = np.random.default_rng(0)
    for path in (gains, gains.with_suffix(".spectra.safetensors")):
        data = path.read_bytes()
        for _ in range(100):
            at = int(rng.integers(len(data)))
            flipped = bytes([data[at] ^ 1 << int(rng.integers(8))])
            path.write_bytes(data[:at] + flipped + data[at + 1 :])
            with pytest.raises(InputError, match=gains.stem):
                load_gains(gains)
        path.write_bytes(data)


def test_a_step_is_done_again_when_what_it_wrote_is_not_there_any_more(tmp_path: Path) -> None:
    table = tmp_path / "tables" / "heads.csv"

    def work() -> Done:
        table.parent.mkdir(exist_ok=True)
        table.write_text("head,pr\n1,2\n")
        return Done([table], "one table")

    assert Steps(tmp_path).do("analyse", {}, work)
    assert not Steps(tmp_path).do("analyse", {}, work)
    for damage in (b"", b"head,pr\n1,3\n"):
        table.write_bytes(damage)
        assert Steps(tmp_path).do("analyse", {}, work)
        assert table.read_text() == "head,pr\n1,2\n"
    table.unlink()
    assert Steps(tmp_path).do("analyse", {}, work)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"analyse": 3}', '{"analyse": {"files": {}}}'])
def test_a_damaged_record_of_steps_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "steps.json").write_text(text)
    assert Steps(tmp_path).do("analyse", {}, lambda: Done([], "nothing"))
    assert "analyse" in json.loads((tmp_path / "steps.json").read_text())


def test_a_file_system_without_locks_is_not_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: FileLock) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(FileLock, "_acquire", fail)
    with writing(tmp_path):  # a file that says who writes takes the place of the lock
        assert (tmp_path / NAME).exists()
        with pytest.raises(StoreError, match="its file system has no locks"), writing(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(StoreError, match="cannot be written"), writing(tmp_path):
        pass


def test_a_folder_that_vanishes_is_no_second_error(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    with writing(folder):
        folder.rename(tmp_path / "y")
    assert not folder.exists()
    with writing(tmp_path / "y"):
        assert (tmp_path / "y" / NAME).exists()


def test_a_tokenizer_whose_process_died_before_its_seal_gets_one(tmp_path: Path) -> None:
    recipe = TextRecipe(vocabulary=300, width=16, depth=1, n_heads=2, d_out=8)
    texts = ["a dog barks", "rain on a roof", "a siren far away"]

    def stage() -> None:
        run_text_stage(recipe, texts, [], tmp_path, 0, torch.device("cpu"), SILENT)

    stage()
    listed = (tmp_path / SUMS).read_text()
    (tmp_path / SUMS).unlink()  # killed between the two
    stage()
    assert (tmp_path / SUMS).read_text() == listed
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace("[PAD]", "[PAX]", 1))
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        stage()
