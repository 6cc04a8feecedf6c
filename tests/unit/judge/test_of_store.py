"""Clips and judges made from a store."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_model import tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.data.splits import grouped_folds
from residual_audio.errors import InputError, StoreError
from residual_audio.extraction.extraction import extract
from residual_audio.judge.of_store import caption_judge, class_judge, clips_of, label_judge, rows_of
from residual_audio.store import Store

N = 20


@pytest.fixture(scope="module")
def dataset():
    return load_dataset("synthetic", n_clips=N, duration_s=1.0)


@pytest.fixture(scope="module")
def store(dataset, tmp_path_factory) -> Store:
    return extract(tiny_model(), dataset, tmp_path_factory.mktemp("run"), device="cpu").store


def test_clips_of_a_store_are_those_of_the_data_set_without_their_sound(dataset, store):
    found = clips_of(store)
    assert [(c.id, c.label, c.captions, c.fold, c.group) for c in found] == [
        (c.id, c.label, c.captions, c.fold, c.group) for c in dataset.clips
    ]
    assert all(clip.path is None for clip in found)


def test_a_class_judge_holds_each_clip_to_its_own_class(store):
    judge = class_judge(store)
    right = [store.classes[i] for i in judge.positive.float().argmax(1)]
    assert right == list(store.clips["label"])
    torch.testing.assert_close(judge.texts, torch.from_numpy(np.array(store.class_embeddings())))
    assert judge.scale == store.logit_scale
    assert torch.equal(judge.at(np.array([3, 1])).positive, judge.positive[[3, 1]])


def test_a_caption_is_right_for_every_clip_that_has_it(store):
    judge = caption_judge(store)
    captions = {c for own in store.clips["captions"] for c in own}
    assert len(judge.texts) <= len(captions)
    for own, row in zip(store.clips["captions"], judge.positive, strict=True):
        assert int(row.sum()) == len(set(own))


def test_a_model_without_text_leaves_no_answers(dataset, tmp_path):
    silent = extract(tiny_model(text=False), dataset, tmp_path, limit=4, device="cpu").store
    for judge in (class_judge, caption_judge):
        with pytest.raises(StoreError, match="no text side"):
            judge(silent)


def test_rows_by_fold_and_limit(store):
    assert rows_of(store) is None
    assert len(rows_of(store, limit=5)) == 5
    with pytest.raises(InputError, match="fold '9'"):
        rows_of(store, ["9"])


@pytest.fixture(scope="module")
def audio_only(tmp_path_factory):
    sounds = load_dataset("synthetic", n_clips=24, duration_s=1.0, classes="siren,drum,rain")
    folder = tmp_path_factory.mktemp("audio-only")
    return extract(tiny_model(text=False), sounds, folder, device="cpu").store


def test_centroids_stand_where_there_are_no_texts(audio_only) -> None:
    judge = label_judge(audio_only)
    unit = np.array(audio_only.embedding())
    labels = np.array(audio_only.clips["label"])
    clips = clips_of(audio_only)
    fewest = min(len({c.group for c in clips if c.label == n}) for n in audio_only.classes)
    folds = grouped_folds(clips, min(5, fewest))
    right = []
    for i, clip in enumerate(clips):
        others = folds != folds[i]
        assert clip.group not in {c.group for c, other in zip(clips, others, strict=True) if other}
        means = [unit[others & (labels == name)].mean(0) for name in audio_only.classes]
        cosines = [unit[i] @ mean / np.linalg.norm(mean) for mean in means]
        right.append(audio_only.classes[int(np.argmax(cosines))] == clip.label)
    joint = torch.from_numpy(np.array(audio_only.embedding(unit=False)))
    found = judge.measure(joint, torch.arange(len(clips)), joint)
    assert found["correct"].bool().tolist() == right
    assert np.isfinite(found["loss"]).all()
    assert float(found["rank"].max()) <= 3
    some = judge.at(np.array([3, 5])).measure(joint[[3, 5]], torch.arange(2), joint[[3, 5]])
    torch.testing.assert_close(some["loss"], found["loss"][[3, 5]])


def test_a_class_in_one_group_cannot_be_judged(tmp_path) -> None:
    sounds = load_dataset("synthetic", n_clips=2, duration_s=1.0, classes="siren,drum")
    store = extract(tiny_model(text=False), sounds, tmp_path, device="cpu").store
    with pytest.raises(InputError, match="centroid of class 'drum'"):
        label_judge(store)
