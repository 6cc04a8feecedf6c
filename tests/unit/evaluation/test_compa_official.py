"""CompA in the layout of its release: both subsets, `-` triplets, local names in `pair_file.1`."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import soundfile
from evaluation_fakes import D, FakeModel

from residual_audio.data.registry import load_dataset
from residual_audio.evaluation.composition import evaluate_compa

RATE_HZ = 1000  # that of the fake model


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))


def _sound(path: Path, seed: int) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = np.random.default_rng(seed).uniform(-0.5, 0.5, D).astype(np.float32)
    soundfile.write(path, wave, RATE_HZ, subtype="FLOAT")
    return wave


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_order_with_and_without_triplets(tmp_path: Path) -> None:
    texts, rows = {}, []
    for i in range(6):
        row = {}
        for k, side in enumerate(("pair", "reversed_pair", "triplet")):
            absent = side == "triplet" and i % 3 > 0
            name, caption = f"{i}_{side}.wav", f"{side} caption {i}"
            row[f"{side}_caption"] = "-" if absent else caption
            row[f"{side}_file"] = "-" if absent else name
            if not absent:
                texts[caption] = _sound(tmp_path / "CompA_order_files" / name, 10 * i + k)
        rows.append(row)
    _write(tmp_path / "CompA_order_benchmark.csv", rows)
    result = evaluate_compa(FakeModel(texts=texts), load_dataset("compa-order", tmp_path))
    assert result["h"].value == 1.0
    assert result["h"].n == 6
    assert result["h_triplet"].n == 2
    assert result["h_triplet"].value == 1.0
    # the same sounds with captions swapped within each pair: nothing is right
    swapped = dict(texts)
    for i in range(6):
        a, b = f"pair caption {i}", f"reversed_pair caption {i}"
        swapped[a], swapped[b] = texts[b], texts[a]
    worst = evaluate_compa(
        FakeModel("swapped", texts=swapped), load_dataset("compa-order", tmp_path)
    )
    assert [worst[name].value for name in "fgh"] == [0, 0, 0]


def test_attribute_with_local_names(tmp_path: Path) -> None:
    texts, rows = {}, []
    for i in range(4):
        row = {}
        for k, side in enumerate(("pair", "reversed_pair")):
            row[f"{side}_caption"] = f"{side} caption {i}"
            row[f"{side}_file"] = f"original name {i} {side}.wav"
            row[f"{side}_file.1"] = f"{i}_{side}.wav"
            texts[row[f"{side}_caption"]] = _sound(
                tmp_path / "CompA_attribute_files" / row[f"{side}_file.1"], 10 * i + k
            )
        rows.append(row)
    _write(tmp_path / "Compa-Attribute.csv", rows)
    result = evaluate_compa(FakeModel(texts=texts), load_dataset("compa-attribute", tmp_path))
    assert result["h"].value == 1.0
    assert result["h"].n == 4
    assert "h_triplet" not in {score.name for score in result.scores}
