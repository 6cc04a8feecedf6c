"""Teaching composition: exchanged captions are negatives, and nothing blurs what is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from residual_audio.errors import InputError, StoreError
from residual_audio.models.weights import read_safetensors
from residual_audio.training.compose_stage import ComposeTask, load_tower_of, weights_of
from residual_audio.training.composition_stages import beginning
from residual_audio.training.line_log import LineLog
from residual_audio.training.losses import at_most, centroid, exchanged, spread
from residual_audio.training.pair_data import PairBatches, load_pairs
from residual_audio.training.recipe import Recipe, load_recipe
from residual_audio.training.training import run_training
from residual_audio.training.training_clips import front_end_spec, load_clips

STEPS = 6
PAIRS = [
    {"dataset": "synthetic", "options": {"n_clips": 8, "kind": "order", "seed": 2}},
    {"dataset": "synthetic", "options": {"n_clips": 8, "kind": "attribute", "seed": 3}},
]


def tiny_recipe(**compose: Any) -> Recipe:
    """An HTS-AT of a few thousand weights on a few synthetic clips and pairs."""
    optimisation = {
        "steps": STEPS,
        "batch_size": 4,
        "lr": 5e-3,
        "ema": 0.5,
        "checkpoint_every": 3,
        "precision": "float32",
    }
    audio = {
        "encoder": {
            "embed_dim": 8,
            "depths": [1, 1],
            "n_heads": [2, 2],
            "window": 4,
            "spec_size": 64,
            "n_mels": 64,
        },
        "front_end": "tiny",
        "d_hidden": 16,
        "data": [{"dataset": "synthetic", "options": {"n_clips": 8, "classes": "drum,rain"}}],
        "track": {"every": 3, "n_clips": 8},
        "optimisation": optimisation | {"steps": 2},
    }
    text = {"vocabulary": 300, "width": 16, "depth": 1, "n_heads": 2, "d_out": 8}
    stage = {
        "data": PAIRS,
        "validation": PAIRS[:1],
        "items": 3,
        "optimisation": optimisation,
    }
    return Recipe.model_validate(
        {"name": "tiny", "seed": 3, "text": text, "audio": audio, "compose": stage | compose}
    )


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


def run(recipe: Recipe, out: Path, stage: str = "all", stop_after: int | None = None) -> Path:
    return run_training(
        recipe, Path(), out, torch.device("cpu"), stage=stage, stop_after=stop_after
    )


def trained(out: Path) -> Path:
    """The uninterrupted run, made once."""
    if not (out / "model").is_dir():
        assert run(tiny_recipe(), out).name == "model"
    return out


def task_of(recipe: Recipe, out: Path) -> ComposeTask:
    assert recipe.compose is not None
    clips = load_clips(recipe.audio, Path(), out / "cache", recipe.seed)
    pairs = load_pairs(
        recipe.compose.data,
        front_end_spec(recipe.audio),
        Path(),
        out / "cache",
        told=recipe.compose.told,
    )
    plain = out / "plain"
    task = ComposeTask(recipe, recipe.compose, clips, pairs, None, load_tower_of(plain))
    weights = weights_of(plain, task.module, clips)
    task.start_from(weights, weights)
    return task


def state(out: Path) -> dict[str, Tensor]:
    return read_safetensors(out / "compose" / "checkpoint.safetensors")


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


# losses


def unit(*shape: int, seed: int = 0) -> Tensor:
    draw = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(draw, dim=-1)


def test_exchanged_is_the_log_odds_of_all_four_comparisons() -> None:
    audio, text = unit(1, 2, 4), unit(1, 2, 1, 4, seed=1)
    s = (text[0, :, 0] @ audio[0].T).tolist()
    pairs = [(s[0][0], s[1][0]), (s[1][1], s[0][1]), (s[0][0], s[0][1]), (s[1][1], s[1][0])]
    expected = sum(math.log1p(math.exp(3 * (wrong - right))) for right, wrong in pairs) / 4
    found = exchanged(audio, text, torch.tensor(3.0), torch.ones(1, 1, dtype=torch.bool))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_exchanged_captions_and_clips_are_pushed_apart() -> None:
    """Each caption gets a gradient from the clip it does not belong to, and the other way round."""
    audio, text = unit(3, 2, 6).requires_grad_(), unit(3, 2, 2, 6, seed=1).requires_grad_()
    told = torch.ones(3, 2, dtype=torch.bool)
    told[2] = False
    exchanged(audio, text, torch.tensor(5.0), told).backward()
    assert audio.grad is not None
    assert text.grad is not None
    with torch.no_grad():
        before = torch.einsum("itkd,iad->itka", text, audio)
        step = torch.einsum("itkd,iad->itka", text - text.grad, audio - audio.grad)
    away = (step - before)[:2]
    wrong_falls = away[:, 0, :, 1] + away[:, 1, :, 0] < away[:, 0, :, 0] + away[:, 1, :, 1]
    assert bool(wrong_falls.all())
    assert not text.grad[2].any()  # the same caption for both: nothing to tell apart


def test_spread_and_centroid_know_a_collapsed_cloud() -> None:
    even, narrow = unit(64, 8), torch.nn.functional.normalize(unit(64, 8) + 5, dim=-1)
    assert spread(even) < spread(narrow)
    assert centroid(even) < 0.1 < centroid(narrow)
    assert float(centroid(torch.cat([even, -even]))) == pytest.approx(0, abs=1e-6)


def test_spread_and_centroid_are_in_the_loss_when_asked_for(whole: Path) -> None:
    trained(whole)
    task = task_of(tiny_recipe(spread_weight=0.1, centroid_weight=0.1), whole)
    _, parts = task.loss(0)
    assert {"spread", "centroid"} <= parts.keys()


def test_a_temperature_beyond_its_limit_comes_back() -> None:
    """Where a plain clamp has no gradient at all."""
    for start, pull, moves in ((5.0, 1.0, True), (5.0, -1.0, False), (1.0, -1.0, True)):
        log_scale = torch.nn.Parameter(torch.tensor(start))
        scale = at_most(log_scale.exp(), 100.0)
        assert float(scale.detach()) == pytest.approx(min(math.exp(start), 100.0))
        (pull * scale).backward()
        assert (float(log_scale.grad or 0) != 0) is moves  # type: ignore[arg-type]


def test_the_learner_uses_that_temperature(whole: Path) -> None:
    trained(whole)
    task = task_of(tiny_recipe(), whole)
    with torch.no_grad():
        task.module.log_scale.fill_(6.0)
    task.module.scale.backward()
    assert task.module.log_scale.grad is not None
    assert float(task.module.log_scale.grad) > 0


# recipes


def test_mistakes_in_a_recipe_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"compose\.data"):
        load_recipe("nano", ["compose.data=[]"])
    with pytest.raises(InputError, match=r"compose\.volume"):
        load_recipe("nano", ["compose.volume=1"])
    with pytest.raises(InputError, match="has no stage 'compose'"):
        run(tiny_recipe().model_copy(update={"compose": None}), tmp_path, stage="compose")
    with pytest.raises(InputError, match="to begin 'compose' with"):
        run(tiny_recipe(), tmp_path, stage="compose")
    with pytest.raises(InputError, match="no compositional pairs"):
        load_pairs(
            tiny_recipe(data=[{"dataset": "synthetic"}]).compose.data,  # type: ignore[union-attr]
            front_end_spec(tiny_recipe().audio),
            Path(),
            tmp_path,
        )


def test_the_bundled_recipe_keeps_what_it_is_judged_on_out() -> None:
    compose = load_recipe("nano").compose
    assert compose is not None
    assert compose.told
    assert compose.spread_weight == compose.centroid_weight == 0
    for part in compose.data:
        assert part.options["class_pairs"] == "train"
        if part.root is not None:
            assert part.options["sources"] == "train"
            assert 4 not in part.options["folds"]
    for part in compose.validation:
        assert part.options["class_pairs"] == "held-out"
        assert 4 not in part.options.get("folds", [])
