"""Many wordings for the text side alone: sounds stay, words move, what was held stays near."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from residual_audio.audio import specs
from residual_audio.audio.frontend import LogMel
from residual_audio.data.wording_grammar import NEVER_SAID, grammar_frames
from residual_audio.data.wordings import ORDER, QUALIFIED, frames_for
from residual_audio.errors import InputError, StoreError
from residual_audio.models import native
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import MLP
from residual_audio.models.text_small import SmallText, SmallTextConfig, train_bpe
from residual_audio.training import lexicon
from residual_audio.training.composition_stages import beginning
from residual_audio.training.lexicon import LexicalText, deciding_entries, whole_words
from residual_audio.training.line_log import LineLog
from residual_audio.training.recipe import Recipe, load_recipe
from residual_audio.training.training import run_training
from residual_audio.training.wording_stage import silent_about_order

STEPS = 4
ORDER_PAIRS = {"dataset": "synthetic", "options": {"n_clips": 8, "kind": "order", "seed": 2}}
SMALL = replace(specs.NANO, n_samples=32_000, hop_length=512)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, and another with the text side that things are held to."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_bpe(["a drum before rain", "rain and then a siren"], 300).to_str()
    from tokenizers import Tokenizer

    for seed, name in enumerate(("start", "plain")):
        torch.manual_seed(seed)
        config = HTSATConfig(
            embed_dim=8, depths=(1, 1), n_heads=(2, 2), window=4, spec_size=64, n_mels=64
        )
        text = SmallTextConfig(vocabulary=300, width=16, depth=1, n_heads=2, d_out=8)
        tower = SmallText(text, Tokenizer.from_str(tokenizer))
        with torch.no_grad():
            tower.tokens.weight.mul_(100)  # random towers put all texts in one place
        model = AudioTextModel(
            name=name,
            family="residual-audio",
            front_end=LogMel(SMALL),
            encoder=HTSAT(config),
            head=MLP(config.latent, 16, 8),
            text=tower,
            logit_scale=14.0,
            sha256="",
        )
        native.save(model, folder / name, {})
    (folder / "captions.csv").write_text(
        "caption\nA dog barks\nA dog barks, then rain falls\nRain on a roof\nA cow and a pig\n"
    )
    return folder


def recipe(**wording: Any) -> Recipe:
    pairs = ORDER_PAIRS["options"] | {"wording": "more"}  # type: ignore[operator]
    stage = {
        "start": "start",
        "held_to": "plain",
        "data": [ORDER_PAIRS | {"options": pairs}],
        "validation": [ORDER_PAIRS | {"options": pairs | {"wording": "choosing"}}],
        "items": 3,
        "kept": 4,
        "look_every": 2,
        "optimisation": {
            "steps": STEPS,
            "lr": 5e-3,
            "ema": 0.5,
            "checkpoint_every": 2,
            "precision": "float32",
        },
    }
    text = {"corpus": [{"file": "captions.csv", "columns": ["caption"]}]}
    data = [{"dataset": "synthetic", "options": {"n_clips": 4, "classes": "drum,rain"}}]
    return Recipe.model_validate(
        {
            "name": "words",
            "seed": 1,
            "text": text,
            "audio": {"data": data},
            "wording": stage | wording,
        }
    )


def run(given: Recipe, root: Path, out: Path, stop_after: int | None = None) -> Path:
    if not (out / "cache").exists():
        out.mkdir(parents=True, exist_ok=True)
        (root / "cache").mkdir(exist_ok=True)
        (out / "cache").symlink_to(root / "cache")
    return run_training(given, root, out, torch.device("cpu"), stop_after=stop_after)


def test_only_the_text_side_learns_and_a_stopped_run_goes_on(made: Path, tmp_path: Path) -> None:
    whole = run(recipe(), made, tmp_path / "a")
    assert run(recipe(), made, tmp_path / "b", stop_after=2).name == "partial"
    again = run(recipe(), made, tmp_path / "b")
    before, after, resumed = (native.load(f) for f in (made / "start", whole, again))
    for part in ("encoder", "head"):
        theirs = getattr(before, part).state_dict()
        for key, value in getattr(after, part).state_dict().items():
            assert torch.equal(value, theirs[key])
    moved = 0.0
    for now, then, same in zip(
        *(m.text.parameters() for m in (after, before, resumed)),  # type: ignore[union-attr]
        strict=True,
    ):
        assert torch.equal(now, same)
        moved += float((now - then).abs().sum())
    assert moved > 0
    log = LineLog(tmp_path / "a" / "wording" / "log.jsonl").read()
    assert [line["step"] for line in log] == list(range(1, STEPS + 1))
    assert {"plain", "contrast", "exchanged", "moved"} <= log[0].keys()
    looks = LineLog(tmp_path / "a" / "wording" / "tracking.jsonl").read()
    assert [look["step"] for look in looks] == [0, 2, 4]
    assert all(0 <= look["pairs_0_h"] <= look["pairs_0_f"] <= 1 for look in looks)
    with pytest.raises(StoreError, match="another wording"):
        run(recipe(anchor=1.0), made, tmp_path / "a")


def test_what_is_held_comes_near_the_text_side_it_is_held_to(made: Path, tmp_path: Path) -> None:
    told = recipe(plain_weight=0, contrast_weight=0, exchanged_weight=0, kept=16)
    run(told, made, tmp_path)
    looks = LineLog(tmp_path / "wording" / "tracking.jsonl").read()
    assert looks[-1]["moved"] < 0.9 * looks[0]["moved"]


def test_plain_wordings_are_where_the_others_go(made: Path, tmp_path: Path) -> None:
    told = recipe(contrast_weight=0, exchanged_weight=0, anchor=0, items=4)
    settings = told.wording.optimisation.model_copy(update={"steps": 16, "lr": 1e-3})  # type: ignore[union-attr]
    wording = told.wording.model_copy(update={"optimisation": settings, "look_every": 0})  # type: ignore[union-attr]
    run(told.model_copy(update={"wording": wording}), made, tmp_path)
    plain = [line["plain"] for line in LineLog(tmp_path / "wording" / "log.jsonl").read()]
    assert sum(plain[-4:]) < 0.8 * sum(plain[:4])


def test_weights_can_be_blended_with_those_of_the_model_before(made: Path, tmp_path: Path) -> None:
    own, mixed = (
        native.load(run(recipe(blend=share), made, tmp_path / str(share))).text
        for share in (0.0, 0.25)
    )
    before = native.load(made / "plain").text
    towers = [tower.parameters() for tower in (own, before, mixed) if tower is not None]
    for a, b, c in zip(*towers, strict=True):
        torch.testing.assert_close(0.75 * a + 0.25 * b, c, atol=1e-6, rtol=1e-5)


def test_captions_that_tell_order_are_not_held() -> None:
    texts = ["A dog barks", "A dog barks, then rain falls", "rain followed by wind", "an engine"]
    assert silent_about_order(texts) == ["A dog barks", "an engine"]


def test_wordings_to_learn_choose_and_report_on_share_no_frame() -> None:
    for frames in (ORDER, QUALIFIED):
        learned = {*frames["plain"], *frames["many"], *frames["more"]}
        assert set(frames["many"]) <= set(frames["more"])
        assert not learned & {*frames["choosing"], *frames["held-out"]}
        assert not set(frames["choosing"]) & set(frames["held-out"])
    said = " ".join(ORDER["more"])
    for word in ("before that", "preced", "succeed", "gives way", "wake", "opens", "leading up"):
        assert word not in said
    reverse = [f for f in ORDER["more"] if f.index("{1}") < f.index("{0}")]
    assert 0.4 < len(reverse) / len(ORDER["more"]) < 0.6


def test_a_grammar_says_nothing_that_is_judged_and_never_contradicts_itself() -> None:
    frames = frames_for("order", "", "grammar")
    judged = [*ORDER["choosing"], *ORDER["held-out"]]
    assert not set(frames) & set(judged)
    for frame in judged:  # every one of them has a word that the grammar never says
        assert any(word in frame for word in NEVER_SAID), frame
    assert not [f for f in grammar_frames() if any(word in f for word in NEVER_SAID)]
    bare = {re.sub("[,;.]", "", frame) for frame in frames}
    exchanged = {f.replace("{0}", "#").replace("{1}", "{0}").replace("#", "{1}") for f in bare}
    assert not bare & exchanged  # one sentence, one meaning
    later_first = [f for f in grammar_frames() if f.index("{1}") < f.index("{0}")]
    assert 0.45 < len(later_first) / len(grammar_frames()) < 0.55
    assert len(set(grammar_frames())) == 4000
    for word in ("before", "after", "introduced by", "followed by", "follows", "announces"):
        either = {f.index("{1}") < f.index("{0}") for f in grammar_frames() if word in f}
        assert either, word
    for word in ("before", "after"):  # what decides is not where it stands
        assert len({f.index("{1}") < f.index("{0}") for f in frames if word in f.split()}) == 2
    assert frames_for("attribute", "pitch", "grammar") == frames_for("attribute", "pitch", "more")


def test_what_is_learned_of_words_reaches_words_that_are_not_taught(made: Path) -> None:
    tower = native.load(made / "start").text
    assert isinstance(tower, SmallText)
    words = whole_words(tower)
    known = torch.zeros(tower.settings.vocabulary, 3)
    number = {word: i for i, word in words.items()}
    known[number["before"]] = known[number["rain"]] = torch.tensor([1.0, 0.0, 0.0])
    module = LexicalText(tower, known, deciding_entries(tower, ["{1} before {0} is"]))
    assert module.strange.nonzero().flatten().tolist() == [number["before"]]  # not "is"
    texts = ["a drum before rain", "a siren"]
    torch.testing.assert_close(module(texts), tower(texts))
    with torch.no_grad():
        module.shared[0] = torch.linspace(-9, 9, 16)
    moved, folded = module(texts), module.folded()
    torch.testing.assert_close(folded(texts), moved)  # nothing is needed once it is learned
    assert not torch.allclose(moved[0], tower(texts)[0])
    rain = folded.tokens.weight - tower.tokens.weight
    torch.testing.assert_close(rain[number["rain"]], rain[number["before"]])
    draw = torch.Generator().manual_seed(0)
    strange = module.said(texts, torch.tensor([1.0, 1.0]), draw)
    assert not torch.allclose(strange[0], moved[0])
    torch.testing.assert_close(strange[1], moved[1])  # has no such word


def test_a_lexicon_learns_beside_the_tower(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vectors(_: str, texts: list[str], *__: object, **___: object) -> object:
        return torch.nn.functional.one_hot(torch.arange(len(texts)) % 5).float().numpy()

    monkeypatch.setattr(lexicon, "embed_sentences", vectors)
    folder = run(recipe(lexicon="x", unknown=0.5, tokens_lr=0.0), made, tmp_path)
    before, after = (native.load(f).text for f in (made / "start", folder))
    assert isinstance(before, SmallText)
    assert isinstance(after, SmallText)
    moved = (after.tokens.weight - before.tokens.weight).abs().sum(1) > 0
    assert set(moved.nonzero().flatten().tolist()) == set(whole_words(before))
    assert sum(p.numel() for p in after.parameters()) == sum(p.numel() for p in before.parameters())


@pytest.mark.parametrize(("name", "taught"), [("nano-wordings", "more"), ("nano-words", "grammar")])
def test_the_bundled_recipes_keep_what_is_judged_out(
    name: str, taught: str, tmp_path: Path
) -> None:
    assert load_recipe("nano").wording is None  # words are for recipes of their own
    recipe = load_recipe(name)
    wording = recipe.wording
    assert wording is not None
    bundled = Path(native.__file__).parent / "nano"
    assert beginning(recipe, "wording", tmp_path, tmp_path) == (bundled, bundled)
    for part in wording.data:
        assert part.options["class_pairs"] == "train"
        assert part.options["wording"] == taught
        assert 4 not in part.options.get("folds", [])
    for part in wording.validation:
        assert part.options["class_pairs"] == "held-out"
        assert part.options["wording"] != "held-out"
        assert 4 not in part.options.get("folds", [])


def test_no_model_to_begin_with_is_said(made: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="to begin 'wording' with"):
        run(recipe(start="nowhere"), made, tmp_path)
