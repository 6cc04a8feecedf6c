"""Clips and judges made from a store."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_model import tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError, StoreError
from residual_audio.extraction.extraction import extract
from residual_audio.judge.of_store import caption_judge, class_judge, clips_of, rows_of
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
