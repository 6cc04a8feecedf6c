"""Parts in a sentence: what is learned of them reaches words never said, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from residual_audio.data.word_roles import ROLES, UNSAID, role_frames
from residual_audio.data.wordings import ORDER, frames_for
from residual_audio.models import native
from residual_audio.models.text_small import SmallText
from residual_audio.training.lexicon import whole_words
from residual_audio.training.recipe import load_recipe
from residual_audio.training.roles import EARLIER, LATER, RoleText, roles_of_unsaid
from residual_audio.training.wording_stage import texts_with

GIVEN = {"preceded": "led by", "interrupted": "trailed by", "that": "pointer"}


@pytest.fixture(scope="module")
def tower() -> SmallText:
    found = native.load(Path(native.__file__).parent / "nano").text
    assert isinstance(found, SmallText)
    return found


def test_no_sentence_has_a_word_or_a_wording_that_is_judged() -> None:
    unsaid = {word for words in UNSAID.values() for word in words}
    assert {"preceded", "precedes", "that"} <= unsaid
    frames = frames_for("order", "", "roles")
    said = {word for frame in frames for word in re.findall("[a-z]+", frame)}
    assert not said & unsaid
    assert not unsaid & {*EARLIER, *LATER, *(w for words in ROLES.values() for w in words)}
    assert not {*frames} & {*ORDER["alike"], *ORDER["choosing"], *ORDER["held-out"]}
    assert set(ORDER["asked"]) <= set(ORDER["held-out"])
    assert not set(ORDER["alike"]) & {*ORDER["more"], *ORDER["held-out"]}
    for wording in ("alike", "asked"):  # each of them turns on one of these words
        for frame in ORDER[wording]:
            assert set(re.findall("[a-z]+", frame)) & unsaid
    bare = {re.sub("[,;.]", "", frame) for frame in role_frames()}
    exchanged = {f.replace("{0}", "#").replace("{1}", "{0}").replace("#", "{1}") for f in bare}
    assert not bare & exchanged
    later_first = sum(f.index("{1}") < f.index("{0}") for f in frames) / len(frames)
    assert 0.4 < later_first < 0.6


def test_only_texts_with_the_words_that_were_not_said_move(tower: SmallText) -> None:
    module = RoleText(tower, GIVEN)
    still = ["This is a sound of rain.", "a dog, then a cow", "Rain created by a bell, before it"]
    moving = ["rain preceded by a dog", "rain, and before that a dog"]
    with torch.no_grad():
        module.roles += torch.linspace(-1, 1, module.roles.numel()).view_as(module.roles)
    made = module.folded()
    assert torch.equal(made(still), tower(still))  # to the bit
    for text in moving:
        assert not torch.allclose(made([text]), tower([text]), atol=1e-3)
    torch.testing.assert_close(made(moving), module(moving))
    changed = (made.tokens.weight != tower.tokens.weight).any(1).nonzero().flatten().tolist()
    assert {whole_words(tower)[i] for i in changed} == set(GIVEN)
    for (name, now), then in zip(made.named_parameters(), tower.parameters(), strict=True):
        assert name == "tokens.weight" or torch.equal(now, then)
    assert texts_with(tower, [*still, *moving], module.moved()) == moving


def test_what_words_teach_of_a_part_a_word_that_was_not_said_gets(tower: SmallText) -> None:
    module = RoleText(tower, GIVEN)
    (0 * module.said(["x"]).sum() + module.said(["Rain created by a bell"]).pow(2).sum()).backward()
    assert module.roles.grad is not None
    moved = module.roles.grad.abs().sum(1) > 0
    assert moved.tolist() == [True, False, False, False, False]  # "led by" alone
    assert all(p.grad is None for p in module.tower.parameters())
    # words of one part say the same
    torch.testing.assert_close(*(module.said([f"rain {w} by wind"]) for w in ("created", "raised")))
    torch.testing.assert_close(
        module.said(["rain created by wind"]), module.folded()(["rain preceded by wind"])
    )


def test_the_encoder_tells_the_side_and_unsure_words_are_left_alone(tower: SmallText) -> None:
    number = {word: i for i, word in whole_words(tower).items()}
    words = torch.zeros(tower.settings.vocabulary, 3)
    for side, known in ((1.0, EARLIER), (-1.0, LATER)):
        for word in known:
            if word in number:
                words[number[word], 0] = side
    for word, side in {"preceded": 1.0, "precedes": 1.0, "interrupted": -1.0}.items():
        words[number[word], 0] = side
    words[number["answered"], 1] = 1.0
    assert roles_of_unsaid(tower, words) == {
        "that": "pointer",
        "preceded": "led by",
        "precedes": "leads",
        "interrupted": "trailed by",
    }


def test_the_bundled_recipe_keeps_what_is_judged_out() -> None:
    wording = load_recipe("nano-roles").wording
    assert wording is not None
    assert wording.roles
    for part in (*wording.data, *wording.validation):
        held = "train" if part in wording.data else "held-out"
        assert part.options["class_pairs"] == held
        assert part.options["wording"] not in ("held-out", "asked")
        assert 4 not in part.options.get("folds", [])
    assert {part.options["wording"] for part in wording.data} == {"roles"}
