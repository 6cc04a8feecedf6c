"""Teaching composition: the stage as a whole, and what a step sees."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from compose_recipe import PAIRS, STEPS, run, state, task_of, tiny_recipe, trained
from torch import Tensor

from residual_audio.errors import InputError, StoreError
from residual_audio.models.weights import read_safetensors
from residual_audio.training.compose_stage import weights_of
from residual_audio.training.composition_stages import beginning
from residual_audio.training.line_log import LineLog
from residual_audio.training.pair_data import PairBatches, load_pairs
from residual_audio.training.training_clips import front_end_spec

# the stage


def test_all_stages_run_and_the_model_loads(whole: Path) -> None:
    from residual_audio.models.native import load

    trained(whole)
    log = LineLog(whole / "compose" / "log.jsonl").read()
    assert [line["step"] for line in log] == list(range(1, STEPS + 1))
    assert {"contrast", "exchanged", "audio_moved", "text_moved"} <= log[0].keys()
    assert not {"spread", "centroid", "classes"} & log[0].keys()
    looks = LineLog(whole / "compose" / "tracking.jsonl").read()
    assert [look["step"] for look in looks] == [0, 3, 6]
    assert all(0 <= look["pairs_0_h"] <= look["pairs_0_f"] for look in looks)
    assert load(whole / "model").embed_text(["rain, then a drum"]).shape == (1, 8)


def test_it_begins_with_the_model_before(whole: Path) -> None:
    """Weights, temperature, and the text vectors it is held to are those of that model."""
    from residual_audio.models.native import load

    trained(whole)
    task, plain = task_of(tiny_recipe(), whole), load(whole / "plain")
    assert float(task.module.scale.detach()) == pytest.approx(plain.logit_scale, rel=1e-5)
    for key, value in plain.head.state_dict().items():
        torch.testing.assert_close(task.module.state_dict()[f"head.{key}"], value)
    task.module.train()  # as the loop does
    heard = task.encode(task.clips.features[:3].float(), ["rain", "a drum"])
    for key in ("audio_moved", "text_moved"):
        assert float(heard.held[key].detach()) == pytest.approx(0, abs=1e-4)
    with torch.no_grad():
        for parameter in task.module.parameters():
            parameter.add_(0.1)
    heard = task.encode(task.clips.features[:3].float(), ["rain", "a drum"])
    assert all(float(value.detach()) > 1e-3 for value in heard.held.values())


def test_resume_equals_uninterrupted(whole: Path, tmp_path: Path) -> None:
    trained(whole)
    start = tiny_recipe(start=str(whole / "plain"))
    assert run(start, tmp_path / "a").name == "model"
    assert run(start, tmp_path / "b", stop_after=4).name == "partial"
    assert run(start, tmp_path / "b").name == "model"
    logs = [LineLog(tmp_path / name / "compose" / "log.jsonl").read() for name in "ab"]
    assert logs[0] == logs[1] == LineLog(whole / "compose" / "log.jsonl").read()
    a, b = state(tmp_path / "a"), state(tmp_path / "b")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_other_pairs_do_not_resume(whole: Path) -> None:
    trained(whole)
    with pytest.raises(StoreError, match="another compose"):
        run(tiny_recipe(exchanged_weight=3.0), whole, stage="compose")


def test_the_teachers_heads_are_fitted_to_a_finished_model(whole: Path, tmp_path: Path) -> None:
    """A model has no such heads: they begin where the latents can explain the teacher."""
    trained(whole)
    task = task_of(tiny_recipe(), whole)
    latent = task.module.encoder.encode(task.clips.features.float()).latent.detach()
    matrix = torch.randn(latent.shape[1], 3, generator=torch.Generator().manual_seed(0))
    task.clips.teacher |= {
        "known": torch.ones(len(latent), dtype=torch.bool),
        "embedding": latent @ matrix + 5,
    }
    task.module.distil_heads["embedding"] = torch.nn.Linear(latent.shape[1], 3)
    fitted = weights_of(whole / "plain", task.module, task.clips)
    guess = latent @ fitted["distil_heads.embedding.weight"].T
    guess = guess + fitted["distil_heads.embedding.bias"]
    target = task.clips.teacher["embedding"]
    assert (guess - target).square().mean() < 0.1 * target.var(0).mean()


def test_one_kind_of_pairs_can_have_a_stage_before(whole: Path, tmp_path: Path) -> None:
    """It begins with the plain model, composition with what it made; both are held to the plain."""
    trained(whole)
    order = tiny_recipe(start=str(whole / "plain"), data=PAIRS[:1]).compose
    recipe = tiny_recipe().model_copy(update={"order": order})
    assert run(recipe, tmp_path).name == "model"
    assert beginning(recipe, "order", Path(), tmp_path) == (whole / "plain", whole / "plain")
    assert beginning(recipe, "compose", Path(), tmp_path) == (
        tmp_path / "ordered",
        whole / "plain",
    )
    assert [(tmp_path / name).is_dir() for name in ("plain", "ordered", "order")] == [
        False, True, True,
    ]  # fmt: skip
    log = LineLog(tmp_path / "compose" / "log.jsonl").read()
    assert log[0]["audio_moved"] > 1e-4


# what a step sees


def test_a_batch_holds_both_clips_and_both_captions(tmp_path: Path) -> None:
    recipe = tiny_recipe()
    assert recipe.compose is not None
    pairs = load_pairs(recipe.compose.data, front_end_spec(recipe.audio), Path(), tmp_path)
    batches = PairBatches(recipe.compose.data, pairs, 0, 3, 2)
    assert batches.counts(0) == {0: 2, 1: 1}
    batch, again = batches.at(4), batches.at(4)
    assert batch.texts == again.texts
    assert torch.equal(batch.features, again.features)
    assert batch.n_clips == 6
    assert len(batch.texts) == 12
    items = {captions: row for row, captions in enumerate(pairs.captions)}
    for i in range(3):
        texts = batch.texts[4 * i : 4 * i + 2], batch.texts[4 * i + 2 : 4 * i + 4]
        row = next(
            row
            for captions, row in items.items()
            if set(texts[0]) <= set(captions[0]) and set(texts[1]) <= set(captions[1])
        )
        assert torch.equal(batch.features[2 * i], pairs.features[row, 0].float())
        assert torch.equal(batch.features[2 * i + 1], pairs.features[row, 1].float())
        for a, b in zip(*texts, strict=True):  # caption k of one is caption k of the other
            assert pairs.captions[row][0].index(a) == pairs.captions[row][1].index(b)
    positive = batch.positives()
    for i in range(6):
        assert positive[i].nonzero().flatten().tolist() == [2 * i, 2 * i + 1]
    assert bool(batch.told_apart().all())


def test_an_epoch_has_every_item_once(tmp_path: Path) -> None:
    recipe = tiny_recipe()
    assert recipe.compose is not None
    pairs = load_pairs(recipe.compose.data[:1], front_end_spec(recipe.audio), Path(), tmp_path)
    batches = PairBatches(recipe.compose.data[:1], pairs, 0, 2, 1)
    first = {batches.at(step).texts[i] for step in range(2) for i in (0, 2)}
    assert len(first) == 4


def test_plain_pairs_can_come_first(tmp_path: Path) -> None:
    data = [PAIRS[0], PAIRS[1] | {"begins": 0.5}]
    recipe = tiny_recipe(data=data)
    assert recipe.compose is not None
    pairs = load_pairs(recipe.compose.data, front_end_spec(recipe.audio), Path(), tmp_path)
    batches = PairBatches(recipe.compose.data, pairs, 0, 4, 1, steps=10)
    assert [batches.counts(step) for step in (0, 4, 5)] == [{0: 4}, {0: 4}, {0: 2, 1: 2}]
    assert batches.at(4).n_clips == batches.at(5).n_clips == 8
    late = [part.model_copy(update={"begins": 0.5}) for part in recipe.compose.data]
    with pytest.raises(InputError, match="must begin at 0"):
        PairBatches(late, pairs, 0, 4, 1)


def test_frozen_parts_stay_as_they_are(whole: Path, tmp_path: Path) -> None:
    trained(whole)
    recipe = tiny_recipe(start=str(whole / "plain"), frozen=["encoder.stages.0", "text.tokens"])
    run(recipe, tmp_path)
    before = read_safetensors(whole / "plain" / "model.safetensors")
    after = read_safetensors(tmp_path / "model" / "model.safetensors")
    for key, value in before.items():
        still = key.startswith(("encoder.stages.0", "text.tokens"))
        if still:
            assert torch.equal(value, after[key]), key
    assert not torch.equal(
        before["encoder.stages.1.0.qkv.weight"], after["encoder.stages.1.0.qkv.weight"]
    )


def test_ordinary_losses_can_be_learned_beside(whole: Path) -> None:
    trained(whole)
    _, parts = task_of(tiny_recipe(ordinary_weight=0.5), whole).loss(0)
    assert {"classes", "pairs", "audio_moved", "text_moved", "exchanged"} <= parts.keys()


def test_pairs_are_neither_moved_nor_mixed_nor_masked(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gain and tilt off, pairs reach the encoder as they are, whatever else is on."""
    trained(whole)
    wild = {"gain_db": 0, "tilt_db": 0, "mix": 1.0, "noise": 1.0, "masks": 5, "pitch": 8}
    task = task_of(tiny_recipe(augment=wild), whole)
    seen: list[Tensor] = []
    audio = task.module.audio

    def spy(features: Tensor) -> Any:
        seen.append(features)
        return audio(features)

    monkeypatch.setattr(task.module, "audio", spy)
    task.loss(2)
    ordinary, pairs = seen
    torch.testing.assert_close(pairs, task.pair_batches.at(2).features, atol=0, rtol=0)
    rows = task.clips.features[task.batches.at(2).rows].float()
    assert not torch.equal(ordinary, rows)


def test_the_control_hears_the_same_and_is_told_less(whole: Path) -> None:
    trained(whole)
    task, control = (task_of(tiny_recipe(told=told), whole) for told in (True, False))
    for step in range(3):
        a, b = task.pair_batches.at(step), control.pair_batches.at(step)
        assert torch.equal(a.features, b.features)
        assert not b.told_apart().any()
        assert bool((b.positives()[0] == b.positives()[1]).all())
    loss, parts = control.loss(0)
    assert parts["exchanged"] == 0
    assert math.isfinite(float(loss.detach()))
