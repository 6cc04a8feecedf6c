"""Training laws: loss falls, resume equals uninterrupted, one seed gives one set of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from heard import embed_audio

from residual_audio.errors import InputError, StoreError
from residual_audio.models.text_small import SmallText, SmallTextConfig, train_bpe
from residual_audio.models.weights import read_safetensors
from residual_audio.training.batches import Batches, share_out
from residual_audio.training.line_log import LineLog
from residual_audio.training.recipe import Optimisation, Recipe, TuneRecipe
from residual_audio.training.training import run_training
from residual_audio.training.training_clips import load_clips
from residual_audio.training.training_loop import schedule

STEPS = 8


def tiny_recipe(**audio: object) -> Recipe:
    """An HTS-AT of a few thousand weights on a few synthetic clips."""
    classes = "drum,siren,rain,heartbeat"
    base = {
        "encoder": {
            "embed_dim": 8,
            "depths": [1, 1],
            "n_heads": [2, 2],
            "window": 4,
            "spec_size": 64,
            "n_mels": 64,
        },
        "front_end": "tiny",
        "head": "mlp",
        "d_hidden": 16,
        "data": [
            {"dataset": "synthetic", "options": {"n_clips": 16, "classes": classes}, "share": 3.0},
            {"dataset": "synthetic", "options": {"n_clips": 4, "kind": "order"}, "share": 1.0},
        ],
        "text_lr": 1.0,
        "track": {"every": 4, "n_clips": 8},
        "optimisation": {
            "steps": STEPS,
            "batch_size": 8,
            "lr": 5e-3,
            "ema": 0.5,
            "checkpoint_every": 3,
            "snapshots": 2,
            "precision": "float32",
        },
    }
    text = {"vocabulary": 300, "width": 16, "depth": 1, "n_heads": 2, "d_out": 8}
    return Recipe.model_validate({"name": "tiny", "seed": 3, "text": text, "audio": base | audio})


def run(recipe: Recipe, out: Path, stop_after: int | None = None) -> Path:
    return run_training(recipe, Path(), out, torch.device("cpu"), stop_after=stop_after)


def trained(out: Path) -> Path:
    """The uninterrupted run, made once."""
    if not (out / "model").is_dir():
        run(tiny_recipe(), out)
    return out


def weights(out: Path) -> dict[str, torch.Tensor]:
    return read_safetensors(out / "audio" / "checkpoint.safetensors")


def test_loss_falls_and_the_model_loads(whole: Path, tmp_path: Path) -> None:
    log = LineLog(trained(whole) / "audio" / "log.jsonl").read()
    losses = [line["loss"] for line in log]
    assert [line["step"] for line in log] == list(range(1, STEPS + 1))
    assert np.mean(losses[-2:]) < 0.9 * np.mean(losses[:2])

    from residual_audio.models.native import load

    model = load(whole / "model")
    prompts = model.embed_text(["the sound of rain", "a drum"])
    wave = np.random.default_rng(0).standard_normal(32_000).astype(np.float32) * 0.1
    audio = embed_audio(model, [wave])
    np.testing.assert_allclose(np.linalg.norm(prompts, axis=1), 1, atol=1e-5)
    assert audio.shape == (1, 8)
    assert model.logit_scale > 1
    snapshots = sorted(p.name for p in (whole / "audio" / "snapshots").iterdir())
    assert snapshots == ["step-000004", "step-000008"]


def test_tracking_follows_every_head(whole: Path) -> None:
    looks = LineLog(trained(whole) / "audio" / "tracking.jsonl").read()
    assert [look["step"] for look in looks] == [0, 4, 8]
    last = looks[-1]
    assert last["heads"] == ["s0.b0.h0", "s0.b0.h1", "s1.b0.h0", "s1.b0.h1"]
    for column in ("pca_90", "pca_99", "pr", "twonn", "mle"):
        assert len(last[column]) == 4
        assert all(v is None or v >= 1 for v in last[column])
    assert 0 <= last["modality_gap"] <= 2
    assert 1 <= last["rankme_audio"] <= 8
    assert looks[0]["pr"] != last["pr"]
    spectra = read_safetensors(whole / "audio" / "tracking" / "step-000008.safetensors")
    assert spectra["s1.b0.attention"].shape == (2, 8)


def test_resume_equals_uninterrupted(whole: Path, tmp_path: Path) -> None:
    trained(whole)
    part = run(tiny_recipe(), tmp_path, stop_after=5)
    assert part.name == "partial"
    assert run(tiny_recipe(), tmp_path).name == "model"
    same = LineLog(whole / "audio" / "log.jsonl").read()
    assert LineLog(tmp_path / "audio" / "log.jsonl").read() == same
    a, b = weights(whole), weights(tmp_path)
    assert a.keys() == b.keys()
    assert any(key.startswith("optimiser/exp_avg/") for key in a)
    for key in a:
        assert torch.equal(a[key], b[key]), key
    assert (whole / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "model" / "model.safetensors"
    ).read_bytes()


def test_lines_after_the_checkpoint_are_not_logged_twice(whole: Path, tmp_path: Path) -> None:
    """A crash between checkpoints: steps 4 and 5 are logged, but the state is that of step 3."""
    import shutil

    run(tiny_recipe(), tmp_path, stop_after=3)
    log = tmp_path / "audio" / "log.jsonl"
    with log.open("a") as file:
        file.write('{"step": 4, "loss": 99.0}\n{"step": 5, "lo')
    run(tiny_recipe(), tmp_path)
    assert LineLog(log).read() == LineLog(trained(whole) / "audio" / "log.jsonl").read()
    shutil.rmtree(tmp_path)


def test_same_seed_same_weights_other_seed_other_weights(whole: Path, tmp_path: Path) -> None:
    trained(whole)
    run(tiny_recipe(), tmp_path / "again")
    run(tiny_recipe().model_copy(update={"seed": 4}), tmp_path / "other")
    a, b, c = weights(whole), weights(tmp_path / "again"), weights(tmp_path / "other")
    assert all(torch.equal(a[key], b[key]) for key in a)
    key = "model/encoder.stages.1.0.qkv.weight"
    assert not torch.equal(a[key], c[key])


def test_another_recipe_does_not_resume(whole: Path) -> None:
    trained(whole)
    changed = tiny_recipe(temperature=0.2)
    with pytest.raises(StoreError, match="another audio recipe"):
        run(changed, whole)


def test_frozen_text_does_not_move(tmp_path: Path) -> None:
    run(tiny_recipe(text_lr=0.0), tmp_path, stop_after=2)
    first = {k: v.clone() for k, v in weights(tmp_path).items() if k.startswith("model/text.")}
    run(tiny_recipe(text_lr=0.0), tmp_path, stop_after=4)
    later = weights(tmp_path)
    assert first
    assert all(torch.equal(value, later[key]) for key, value in first.items())


def test_muon_trains_and_resumes(tmp_path: Path) -> None:
    base = tiny_recipe().audio.optimisation.model_copy(update={"optimiser": "muon", "steps": 4})
    recipe = tiny_recipe(optimisation=base.model_dump(), track={"every": 0})
    run(recipe, tmp_path / "a")
    run(recipe, tmp_path / "b", stop_after=2)
    run(recipe, tmp_path / "b")
    a, b = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert any("momentum" in key for key in a)
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_batches_cover_an_epoch_once_and_respect_shares(tmp_path: Path) -> None:
    recipe = tiny_recipe()
    clips = load_clips(recipe.audio, Path(), tmp_path, 0)
    batches = Batches(recipe.audio, clips, 0, 8)
    assert batches.counts == [6, 2]
    rows = torch.cat([batches.rows(step) for step in range(8)])
    drawn = rows[clips.sources[rows] == 0]
    assert sorted(drawn[:16].tolist()) == list(range(16))
    batch = batches.at(5)
    positive, related = batch.positives()
    assert bool(positive.diagonal().all())
    assert bool((positive <= related).all())
    assert torch.equal(batch.movable, clips.labels[batch.rows] >= 0)
    target, allowed = batch.class_targets(clips)
    assert bool((target <= allowed.float()).all())
    assert share_out(10, [1.0, 1.0, 1.0]) == [4, 3, 3]


def test_positives_join_a_class_but_not_captions(tmp_path: Path) -> None:
    from residual_audio.training.batches import Batch

    batch = Batch(
        rows=torch.arange(4),
        texts=["rain", "drops fall on a roof", "a drum", "first rain, then a drum"],
        general=torch.tensor([True, False, True, False]),
        labels=torch.tensor([0, 0, 1, -1]),
        sources=torch.zeros(4, dtype=torch.long),
        movable=torch.tensor([True, True, True, False]),
        prompts=[],
    )
    positive, related = batch.positives()
    assert positive[1, 0]  # a class prompt fits the other clip of the class
    assert not positive[0, 1]  # somebody else's caption does not have to
    assert related[0, 1]  # but it is no negative either
    assert not related[3, :3].any()


def test_text_distillation_learns(tmp_path: Path) -> None:
    from residual_audio.training.recipe import TextRecipe
    from residual_audio.training.text_stage import TextTask, load_tower, save_tower
    from residual_audio.training.training_loop import train

    words = ["rain", "dog", "bell", "engine", "wind", "door"]
    texts = [f"{a} and {b}" for a in words for b in words]
    # a made-up teacher: a sentence is the sum of its words
    table = np.random.default_rng(0).standard_normal((len(words), 8))
    targets = np.array(
        [table[words.index(a)] + table[words.index(b)] for a in words for b in words]
    )
    targets = (targets / np.linalg.norm(targets, axis=1, keepdims=True)).astype(np.float32)
    settings = Optimisation(steps=60, batch_size=16, lr=1e-2, ema=0.5, weight_decay=0)
    recipe = TextRecipe(
        vocabulary=320, width=16, depth=1, n_heads=2, d_out=8, optimisation=settings
    )
    config = SmallTextConfig(vocabulary=320, width=16, depth=1, n_heads=2, d_out=8)
    torch.manual_seed(0)
    tower = SmallText(config, train_bpe(texts, 320))
    train(TextTask(tower, texts, targets, recipe, 0), settings, tmp_path, torch.device("cpu"))
    looks = LineLog(tmp_path / "tracking.jsonl").read()
    assert looks[-1]["held_out_cosine"] > max(0.6, looks[0]["held_out_cosine"] + 0.2)
    save_tower(tower, tmp_path / "tower")
    torch.testing.assert_close(load_tower(tmp_path / "tower")(texts[:3]), tower(texts[:3]))


def test_a_run_can_be_brought_to_an_earlier_end(tmp_path: Path) -> None:
    """Same recipe, fewer steps: it continues from its checkpoint and is annealed by the new end."""
    run(tiny_recipe(), tmp_path, stop_after=3)
    first = LineLog(tmp_path / "audio" / "log.jsonl").read()
    shorter = tiny_recipe().audio.optimisation.model_copy(update={"steps": 6})
    assert run(tiny_recipe(optimisation=shorter.model_dump()), tmp_path).name == "model"
    log = LineLog(tmp_path / "audio" / "log.jsonl").read()
    assert log[:3] == first
    assert [line["step"] for line in log] == [1, 2, 3, 4, 5, 6]
    assert log[-1]["rate"] == pytest.approx(schedule(5, shorter), abs=1e-6)


def test_half_weights_are_half_the_size_and_nearly_the_same(whole: Path, tmp_path: Path) -> None:
    from residual_audio.models.native import load

    trained(whole)
    half = tiny_recipe().model_copy(update={"weights": "float16"})
    run(half, tmp_path)
    sizes = [(p / "model" / "model.safetensors").stat().st_size for p in (whole, tmp_path)]
    assert sizes[1] < 0.6 * sizes[0]
    wave = np.random.default_rng(0).standard_normal(32_000).astype(np.float32) * 0.1
    a, b = (embed_audio(load(p / "model"), [wave])[0] for p in (whole, tmp_path))
    assert float(a @ b) > 0.999


def test_class_labels_alone_make_a_model_without_text(tmp_path: Path) -> None:
    """The same encoder, clips and batches as the contrastive run; only what is asked differs."""
    from residual_audio.models.native import load

    recipe = tiny_recipe(objective="labels")
    part = run(recipe, tmp_path / "resumed", stop_after=5)
    assert part.name == "partial"
    model = load(run(recipe, tmp_path / "resumed"))
    assert model.text is None
    run(recipe, tmp_path / "whole")
    for key, value in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "resumed")[key], value, rtol=0, atol=0)
    log = LineLog(tmp_path / "whole" / "audio" / "log.jsonl").read()
    assert {"classes", "loss"} <= set(log[0])
    assert not {"pairs", "moved"} & set(log[0])
    losses = [line["loss"] for line in log]
    assert np.mean(losses[-2:]) < 0.9 * np.mean(losses[:2])
    looks = LineLog(tmp_path / "whole" / "audio" / "tracking.jsonl").read()
    assert 0 <= looks[-1]["probe_accuracy"] <= 1
    with pytest.raises(StoreError, match="another audio recipe"):
        run(tiny_recipe(), tmp_path / "whole")
    tuned = recipe.model_copy(update={"tune": TuneRecipe(optimisation=Optimisation(steps=1))})
    with pytest.raises(InputError, match="no text side"):
        run(tuned, tmp_path / "tuned")
