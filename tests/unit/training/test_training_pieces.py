"""What training is made of: losses, held-out groups, augmentation, tokens, recipes, schedule."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from residual_audio.errors import InputError
from residual_audio.models.text_small import SmallText, SmallTextConfig, load_bpe, train_bpe
from residual_audio.training import augment as aug
from residual_audio.training.corpus import cut_phrases, readable_title
from residual_audio.training.losses import multi_positive, relational, symmetric_contrastive
from residual_audio.training.recipe import Augmentation, Optimisation, load_recipe
from residual_audio.training.sentence import even_out, into_space
from residual_audio.training.training_clips import hold_out
from residual_audio.training.training_loop import generator, schedule


def test_one_positive_is_info_nce() -> None:
    logits = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(6))
    torch.testing.assert_close(multi_positive(logits, torch.eye(6)), expected)


def test_ignored_pairs_do_not_count() -> None:
    """Making an ignored pair as similar as one likes changes nothing."""
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    positive = torch.eye(4, 5)
    ignore = torch.zeros(4, 5, dtype=torch.bool)
    ignore[0, 3] = True
    changed = logits.clone()
    changed[0, 3] = 50.0
    a, b = multi_positive(logits, positive, ignore), multi_positive(changed, positive, ignore)
    torch.testing.assert_close(a, b)
    assert multi_positive(changed, positive) > b + 1


def test_contrastive_is_symmetric_in_its_sides() -> None:
    source = torch.Generator().manual_seed(2)
    audio, text = (torch.nn.functional.normalize(torch.randn(5, 4, generator=source)) for _ in "ab")
    positive = (torch.rand(5, 5, generator=source) > 0.5).float() + torch.eye(5)
    scale = torch.tensor(7.0)
    torch.testing.assert_close(
        symmetric_contrastive(audio, text, scale, positive),
        symmetric_contrastive(text, audio, scale, positive.T),
    )


def test_relational_loss_is_blind_to_rotation() -> None:
    source = torch.Generator().manual_seed(3)
    x = torch.randn(10, 6, generator=source)
    q = torch.linalg.qr(torch.randn(6, 6, generator=source))[0]
    assert float(relational(x @ q, x)) == pytest.approx(0, abs=1e-5)
    assert float(relational(torch.randn(10, 6, generator=source), x)) > 0.01


def test_groups_are_held_out_whole() -> None:
    groups = [f"g{i // 4}" for i in range(40)]
    held = hold_out(groups, 0.3, 0)
    assert int(held.sum()) == 12
    assert all(len(set(held[4 * i : 4 * i + 4].tolist())) == 1 for i in range(10))


def test_sounds_add_in_power() -> None:
    ten = torch.tensor(10.0)
    assert float(aug.add_db(ten, ten)) == pytest.approx(13.0103, abs=1e-3)
    assert float(aug.add_db(ten, torch.tensor(-100.0))) == pytest.approx(10.0, abs=1e-3)


def test_order_clips_are_neither_rolled_nor_mixed() -> None:
    x = torch.randn(6, 40, 8, generator=torch.Generator().manual_seed(0)) * 10 - 40
    movable = torch.tensor([True, True, True, False, False, True])
    only_time = Augmentation(
        gain_db=0, tilt_db=0, speed=0, pitch=0, noise=0, mix=0.5, cut=0.5, masks=0
    )
    done = aug.augment(x, movable, only_time, -200.0, generator(0, 1))
    torch.testing.assert_close(done.features[~movable], x[~movable])
    assert not torch.equal(done.features[movable], x[movable])
    assert bool((done.own[~movable] == 1).all())
    assert torch.equal(done.partner[~movable], torch.arange(6)[~movable])
    assert bool(movable[done.partner[movable]].all())


def test_augmentation_is_off_when_everything_is_zero() -> None:
    x = torch.randn(4, 30, 8, generator=torch.Generator().manual_seed(1)) * 10 - 40
    off = Augmentation(
        shift=False, gain_db=0, tilt_db=0, speed=0, pitch=0, noise=0, mix=0, cut=0, masks=0
    )
    done = aug.augment(x, torch.ones(4, dtype=torch.bool), off, -200.0, generator(0, 2))
    torch.testing.assert_close(done.features, x)


def test_bpe_spells_anything_and_survives_the_disk(tmp_path: Path) -> None:
    tokenizer = train_bpe(["a dog barks", "rain falls on a roof"], 300)
    tower = SmallText(
        SmallTextConfig(vocabulary=300, width=16, depth=1, n_heads=2, d_out=4), tokenizer
    )
    tower.save_tokenizer(tmp_path)
    texts = ["Ünknown ☂ words", "a dog barks", ""]
    again = SmallText.from_config(tower.config, tmp_path)
    again.load_state_dict(tower.state_dict())
    out = tower(texts)
    assert bool(torch.isfinite(out).all())
    torch.testing.assert_close(out, again(texts))
    # padding does not leak: a text alone equals the text in a batch
    torch.testing.assert_close(tower([texts[1]])[0], out[1], atol=1e-5, rtol=1e-5)
    with pytest.raises(InputError, match="expected a list"):
        tower([])
    with pytest.raises(Exception, match=r"tokenizer"):
        load_bpe(tmp_path / "nothing.json")


def test_titles_and_phrases_read_like_words() -> None:
    assert readable_title("Vacuum_Cleaner-SamsungEasy 1300.wav") == "vacuum cleaner samsung easy"
    assert cut_phrases("A dog barks while rain falls, and a man speaks.") == [
        "a dog barks",
        "rain falls",
        "a man speaks",
    ]


def test_evening_out_whitens_at_one() -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((500, 6)) * [5, 4, 3, 2, 1, 0.5] + 3).astype(np.float32)
    matrix, offset = even_out(x, 4, 1.0)
    moved = x @ matrix + offset
    np.testing.assert_allclose(np.cov(moved.T, bias=True), np.eye(4), atol=1e-3)
    np.testing.assert_allclose(
        np.linalg.norm(into_space(x, (matrix, offset)), axis=1), 1, atol=1e-5
    )


def test_the_bundled_recipe_is_valid_and_keeps_fold_4_out() -> None:
    recipe = load_recipe("nano")
    esc50 = next(part for part in recipe.audio.data if part.dataset == "esc50")
    assert esc50.folds == (1, 2, 3)
    assert {part.dataset for part in recipe.audio.data} == {"esc50", "synthetic"}
    assert any(source.where == {"fold": "4"} for source in recipe.text.hold_out)


def test_settings_lie_over_a_recipe_and_mistakes_are_named(tmp_path: Path) -> None:
    recipe = load_recipe("nano", ["audio.optimisation.lr=0.001", "name=mine"])
    assert recipe.audio.optimisation.lr == 0.001
    assert recipe.name == "mine"
    with pytest.raises(InputError, match=r"audio\.optimisation\.lr"):
        load_recipe("nano", ["audio.optimisation.lr=fast"])
    with pytest.raises(InputError, match=r"section\.key=value"):
        load_recipe("nano", ["audio"])
    with pytest.raises(InputError, match="no recipe 'nix'"):
        load_recipe("nix")
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": "x", "audio": {"colour": 1}}))
    with pytest.raises(InputError, match="colour"):
        load_recipe(path)


def test_schedule_warms_up_and_falls() -> None:
    settings = Optimisation(steps=100, warmup=0.1, final=0.01)
    rates = [schedule(step, settings) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0)
    assert np.argmax(rates) in (9, 10)
    assert rates[-1] < 0.02
