"""Zero-shot, retrieval and CompA on a model whose every answer is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evaluation_fakes import D, FakeModel, captioned, dataset, labelled, paired, text_vector

from residual_audio.embeddings import prompts
from residual_audio.errors import DatasetError, InputError
from residual_audio.evaluation import composition, retrieval, zero_shot
from residual_audio.results import result_to_dict
from residual_audio.types import Clip, Result

PLAIN = prompts.find_prompts("dataset", "a {}")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path))


def _names(result: Result) -> list[str]:
    return [score.name for score in result.scores]


def test_prompts_by_name_template_and_ensemble() -> None:
    assert prompts.find_prompts("sound").templates == ("This is a sound of {}.",)
    assert prompts.find_prompts("dataset", "a {}").templates == ("a {}",)
    own = prompts.find_prompts(["I hear {}", "plain", "I hear {}"])
    assert own.templates == ("I hear {}", "{}")
    assert own.fill("a dog") == ["I hear a dog", "a dog"]
    with pytest.raises(InputError, match="'nothing' is neither"):
        prompts.find_prompts("nothing")
    with pytest.raises(InputError, match="no prompt"):
        prompts.find_prompts([])


def test_ensemble_is_the_mean_of_unit_vectors() -> None:
    model = FakeModel()
    both = prompts.find_prompts(["a {}", "the {}"])
    found = prompts.embed_classes(model, ["x", "y"], both)
    parts = model.embed_text(["a y", "the y"]).astype(float)
    expected = parts.mean(0) / np.linalg.norm(parts.mean(0))
    np.testing.assert_allclose(found[1], expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)


def test_zero_shot_perfect_and_random() -> None:
    data, model = labelled()
    result = zero_shot.evaluate_zero_shot(model, data, PLAIN, split="fold 1")
    assert _names(result) == ["top1", "top5", "macro_f1", "map", "ece"]
    for name in ("top1", "top5", "macro_f1", "map"):
        assert result[name].value == 1.0
    assert result["top1"].chance == pytest.approx(1 / 6)
    assert result["top5"].chance == pytest.approx(5 / 6)
    assert result["top1"].low < 1.0  # Wilson on 18 groups, not a point
    assert result["top1"].n == 36
    assert result.details["n_groups"] == 18
    assert np.trace(result.details["confusion"]) == 36
    assert result.per_item is not None
    assert result.per_item["rank"] == [1] * 36
    blind = FakeModel("blind", texts={f"a {c}": text_vector(c * 2) for c in data.classes})
    low = zero_shot.evaluate_zero_shot(blind, data, PLAIN)
    assert low["top1"].value < 0.7


def test_zero_shot_record_says_what_was_done() -> None:
    data, model = labelled(noise=2.0)
    result = zero_shot.evaluate_zero_shot(model, data, PLAIN, seed=5)
    document = json.loads(json.dumps(result_to_dict(result), allow_nan=False))
    record = document["provenance"]
    assert record["model"]["sha256"] == model.sha256
    assert record["dataset"]["fingerprint"] == data.fingerprint()
    assert record["prompts"] == ["a {}"]
    assert record["seed"] == 5
    assert document["details"]["prompts"]["name"] == "dataset"
    top1 = result["top1"]
    assert top1.low <= top1.value <= top1.high
    assert result["top1"] == zero_shot.evaluate_zero_shot(model, data, PLAIN, seed=5)["top1"]
    per_class = {row["class"]: row for row in result.details["per_class"]}
    assert per_class["dog"]["support"] == 6
    wrong = [row for row in per_class.values() if row["recall"] < 1]
    assert all(row["taken_for"] in data.classes for row in wrong)
    assert wrong


def test_zero_shot_constant_model_fails_instead_of_winning() -> None:
    data, _ = labelled()
    same = FakeModel("same", texts={f"a {c}": np.ones(D) for c in data.classes})
    result = zero_shot.evaluate_zero_shot(same, data, PLAIN)
    assert result["top1"].value == 0.0


def test_zero_shot_refuses_what_has_no_labels() -> None:
    vectors = {"a": np.ones(D), "b": np.ones(D)}
    unlabelled = dataset(vectors, [Clip(id="a", label="x"), Clip(id="b")], classes=["x", "y"])
    with pytest.raises(DatasetError, match=r"1 clips .* 'b'"):
        zero_shot.evaluate_zero_shot(FakeModel(), unlabelled, PLAIN)
    with pytest.raises(DatasetError, match="1 classes"):
        zero_shot.evaluate_zero_shot(
            FakeModel(), dataset(vectors, [Clip(id="a", label="x")], classes=["x"]), PLAIN
        )


def test_zero_shot_single_clip_has_a_value_and_no_interval() -> None:
    data = dataset({"a": text_vector("a x")}, [Clip(id="a", label="x")], classes=["x", "y"])
    result = zero_shot.evaluate_zero_shot(FakeModel(), data, PLAIN)
    assert result["top1"].value == 1.0
    assert np.isnan(result["top1"].low)


def test_retrieval_both_ways() -> None:
    data, model = captioned(noise=0.0)
    result = retrieval.evaluate_retrieval(model, data)
    assert _names(result) == [
        f"{way}_{name}"
        for way in ("t2a", "a2t")
        for name in ("r1", "r5", "r10", "map10", "median_rank")
    ]
    assert result["t2a_r1"].value == 1.0
    assert result["t2a_r1"].n == 36
    assert result["t2a_r1"].chance == pytest.approx(1 / 12)
    assert result["a2t_r1"].n == 12
    assert result["a2t_r1"].chance == pytest.approx(3 / 36)
    assert result["a2t_map10"].value == pytest.approx(1.0)
    assert result["t2a_median_rank"].value == 1
    assert result["t2a_median_rank"].chance == 6.5
    assert result.details["n_captions"] == 36
    noisy = retrieval.evaluate_retrieval(*reversed(captioned(n=40, noise=2.0)))
    assert noisy["t2a_r1"].value < noisy["t2a_r5"].value < noisy["t2a_r10"].value


def test_retrieval_of_random_vectors_is_at_chance() -> None:
    # ten scores at 95% each: one in two draws has one that is off (with seed 0, 4 hits for 1)
    rng = np.random.default_rng(1)
    n = 400
    vectors = {f"c{i}": rng.normal(size=D) for i in range(n)}
    clips = [Clip(id=f"c{i}", captions=(f"x{i}", f"y{i}")) for i in range(n)]
    result = retrieval.evaluate_retrieval(FakeModel("r"), dataset(vectors, clips))
    for score in result.scores:
        assert score.chance is not None
        assert score.low - 0.25 * abs(score.chance) <= score.chance
        assert score.chance <= score.high + 0.25 * abs(score.chance)


def test_a_shared_caption_is_right_for_each_of_its_clips() -> None:
    v, w = text_vector("one"), text_vector("two")
    vectors = {"a": v, "b": v + 0.01 * w, "c": w}
    clips = [
        Clip(id="a", captions=("one",)),
        Clip(id="b", captions=("One",)),
        Clip(id="c", captions=("two", " ")),
    ]
    result = retrieval.evaluate_retrieval(FakeModel("s"), dataset(vectors, clips))
    assert result.details["n_shared_captions"] == 2
    assert result.details["n_captions"] == 3
    assert result.per_item is not None
    assert result.per_item["n_right"] == [2, 2, 1, 2, 2, 1]


def test_retrieval_refuses_missing_captions() -> None:
    vectors = {"a": np.ones(D), "b": np.ones(D)}
    with pytest.raises(DatasetError, match="no captions"):
        retrieval.evaluate_retrieval(FakeModel(), dataset(vectors, [Clip(id="a"), Clip(id="b")]))
    one = [Clip(id="a", captions=("x",)), Clip(id="b")]
    with pytest.raises(DatasetError, match="1 readable clips"):
        retrieval.evaluate_retrieval(FakeModel(), dataset(vectors, one))
    with pytest.raises(InputError, match="3 caption vectors do not fit 2"):
        retrieval.rank_both_ways(np.ones((2, D)), np.ones((3, D)), [[0], [1]])


def test_compa_perfect_swapped_and_triplets() -> None:
    data, model = paired(triplets=True)
    result = composition.evaluate_compa(model, data)
    assert _names(result) == [
        "f", "g", "h", "t2a_one_sided", "a2t_one_sided", "both_one_sided",
        "f_triplet", "g_triplet", "h_triplet",
    ]  # fmt: skip
    assert all(score.value == 1.0 for score in result.scores)
    assert result["h"].chance == pytest.approx(1 / 6)
    assert result["h_triplet"].n == 5
    assert result["h_triplet"].chance == pytest.approx(1 / 60)
    assert result["h"].low < 1 == result["h"].high
    swapped = composition.evaluate_compa(*reversed(paired(swap=True)))
    assert [swapped[n].value for n in "fgh"] == [0, 0, 0]
    assert swapped.details["failures"]["share"]["alignment"] == 1.0


def test_compa_names_the_side_that_fails() -> None:
    data, model = paired(40)
    for pair in data.pairs:  # captions of a pair become one point
        model.texts[pair.captions[1]] = model.texts[pair.captions[0]]
    model.name, model.sha256 = "deaf", "deaf"
    result = composition.evaluate_compa(model, data)
    assert result["h"].value == 0
    assert result.details["failures"]["share"]["text"] == 1.0
    assert result.details["failures"]["median_text_separation"] == 0


def test_compa_leaves_out_unreadable_items_and_says_so() -> None:
    data, model = paired(6)
    vectors = {c.id: data.read(c, 1) for c in data.clips}
    broken = dataset(vectors, data.clips, pairs=data.pairs, broken=["p2-1"])
    result = composition.evaluate_compa(model, broken)
    assert result.details["n_pairs"] == 5
    assert result.details["n_left_out"] == 1
    assert "p2-1" in result.details["skipped"]
    plain, fake = labelled()
    with pytest.raises(DatasetError, match="no compositional pairs"):
        composition.evaluate_compa(fake, plain)
