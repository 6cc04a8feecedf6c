"""Patching between clips of different classes, by prompts or by centroids of other clips."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.tiny_model import tiny_model

import residual_audio as ra
from residual_audio.data.splits import grouped_folds
from residual_audio.errors import ModelError
from residual_audio.patching.class_pairs import exchanges_of_dataset, pairs_of_classes
from residual_audio.patching.measures import TextMargin
from residual_audio.types import Clip

CLASSES = ["steady tone", "rain", "siren"]


@pytest.fixture(scope="module")
def sounds() -> ra.Dataset:
    return ra.load_dataset("synthetic", n_clips=328, duration_s=1.0).select(classes=CLASSES)


def test_a_clip_is_judged_by_centroids_of_other_folds(sounds: ra.Dataset) -> None:
    model = tiny_model(text=False)
    given = exchanges_of_dataset(model, sounds)
    clips = list(sounds.clips)
    waves = [sounds.read(clip, model.sample_rate_hz) for clip in clips]
    vectors = torch.from_numpy(model.embed_audio(waves, sample_rate=model.sample_rate_hz))
    folds = grouped_folds(clips, 5, 0)
    for item in given.items:
        assert isinstance(item.measure, TextMargin)
        label = clips[item.clean].label
        own = [
            i for i, clip in enumerate(clips)
            if clip.label == label and folds[i] != folds[item.corrupt]
        ]  # fmt: skip
        want = torch.nn.functional.normalize(vectors[own].mean(0), dim=-1)
        torch.testing.assert_close(item.measure.right[0], want, atol=1e-4, rtol=0)


@pytest.mark.parametrize("text", [True, False], ids=["prompts", "centroids"])
def test_the_whole_stream_carries_the_class(sounds: ra.Dataset, text: bool) -> None:
    found = ra.patching(tiny_model(text=text), pairs=sounds, units=["embedding", "s3"])
    assert found["effect"][0] == pytest.approx(1, abs=1e-3)
    assert 2 <= int(found["n_groups"][0]) <= len(sounds.clips) // 2


def test_pairs_without_texts_say_what_they_can_be_measured_by() -> None:
    pairs = ra.load_dataset("synthetic", kind="order", n_clips=4)
    with pytest.raises(ModelError, match="labelled data set without pairs"):
        ra.patching(tiny_model(text=False), pairs=pairs)


def test_a_source_meets_one_other_and_lengths_do_not_mix() -> None:
    clips = [Clip(f"{i}", label="ab"[i % 2], group=f"g{i // 4}-{i % 2}") for i in range(24)]
    codes = np.array([i % 2 for i in range(24)])
    lengths = [0] * 20 + [1] * 4
    pairs = pairs_of_classes(clips, codes, lengths, seed=0)
    assert pairs
    partners: dict[str, set[str]] = {}
    for a, b in pairs:
        assert codes[a] != codes[b]
        assert lengths[a] == lengths[b]
        partners.setdefault(clips[a].group or "", set()).add(clips[b].group or "")
        partners.setdefault(clips[b].group or "", set()).add(clips[a].group or "")
    assert all(len(met) == 1 for met in partners.values())
