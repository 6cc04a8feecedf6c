"""What every test of training begins with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _small_and_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A front-end of 65 frames, and one thread, whatever the machine has."""
    from residual_audio.audio import specs

    tiny = replace(specs.NANO, n_samples=32_000, hop_length=512)
    monkeypatch.setattr(specs, "TINY", tiny, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _log_mels_made_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All runs hear the same few clips, which take longer to make than to learn from."""
    from residual_audio.training import pair_data, training_clips

    made = training_clips.features_of
    shared = tmp_path_factory.getbasetemp() / "log-mels"

    def from_one_place(name, data, clips, spec, cache, *rest):  # type: ignore[no-untyped-def]
        return made(name, data, clips, spec, shared, *rest)

    for module in (training_clips, pair_data):
        monkeypatch.setattr(module, "features_of", from_one_place)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the uninterrupted run, shared by the tests that compare with it."""
    return tmp_path_factory.mktemp("whole")
