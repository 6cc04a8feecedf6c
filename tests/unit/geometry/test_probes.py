"""Probes on clouds of known shape, from arrays, files, runs and models; and the diagnosis."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from evaluation_fakes import D, FakeModel, captioned, dataset, labelled, paired
from safetensors.numpy import save_file

from residual_audio.embeddings.prompts import find_prompts
from residual_audio.errors import InputError
from residual_audio.geometry import cards as compare
from residual_audio.geometry import probes
from residual_audio.geometry.cloud_sources import clouds_of_files, clouds_of_model, read_arrays
from residual_audio.geometry.clouds import halves, make_clouds, thin
from residual_audio.results import result_to_dict
from residual_audio.types import Clip

PLAIN = find_prompts("dataset", "a {}")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))


def _pair(n: int = 120, d: int = 24, noise: float = 0.3, seed: int = 0) -> tuple:
    rng = np.random.default_rng(seed)
    audio = rng.normal(size=(n, d))
    return audio, audio + noise * rng.normal(size=(n, d))


def test_every_probe_is_there_with_an_interval() -> None:
    result = probes.probe(make_clouds(*_pair()), n_halves=12)
    names = {score.name for score in result.scores}
    for side in ("audio", "text"):
        wanted = {f"{p}_{side}" for p in ("rankme", "effective_rank", "twonn", "mle")}
        wanted |= {f"residual_energy_{k}_{side}" for k in (1, 5, 10)}
        wanted |= {f"{p}_{side}" for p in ("uniformity", "hubness", "mean_cosine")}
        assert wanted <= names
    assert {"gap_l2", "gap_cosine", "gap_angle_deg", "alignment", "pair_auc"} <= names
    for score in result.scores:
        assert score.low <= score.value <= score.high, score
    assert 20 < result["rankme_audio"].value <= 24
    assert result["twonn_audio"].value > 8
    assert result["pair_auc"].value > 0.95
    assert result.details["reasons"] == {}


def test_intervals_of_a_mean_are_as_wide_as_theory_says() -> None:
    rng = np.random.default_rng(1)
    a, t = rng.normal(size=(300, 8)) + 1, rng.normal(size=(300, 8)) + 1
    clouds = make_clouds(a, t)
    squared = ((clouds.audio - clouds.text) ** 2).sum(1)  # type: ignore[operator]
    score = probes.probe(clouds, n_halves=60)["alignment"]
    assert score.value == pytest.approx(squared.mean())
    expected = 1.96 * squared.std() / math.sqrt(300)
    assert (score.high - score.value) == pytest.approx(expected, rel=0.4)


def test_constant_and_tiny_clouds_give_reasons_not_crashes() -> None:
    same = make_clouds(np.ones((30, 4)), np.ones((30, 4)))
    values, reasons = probes.measure(same)
    assert values["rankme_audio"] == pytest.approx(1)
    assert math.isnan(values["twonn_audio"])
    assert "constant" in reasons["twonn_audio"]
    assert math.isnan(values["effective_rank_text"])
    assert values["pair_auc"] == 0.5
    single = probes.probe(make_clouds(np.ones((1, 4)), np.ones((1, 4))))
    assert math.isnan(single["twonn_audio"].value)
    assert math.isnan(single["rankme_audio"].low)
    result_to_dict(single)


def test_audio_only_and_unpaired_clouds() -> None:
    values, reasons = probes.measure(make_clouds(_pair()[0], None))
    assert "rankme_audio" in values
    assert "gap_l2" not in values
    assert "no text side" in reasons["text"]
    values, reasons = probes.measure(make_clouds(np.eye(6), np.eye(6)[:4]))
    assert "gap_l2" in values
    assert "alignment" not in values
    assert "not known" in reasons["alignment"]


def test_bad_matrices_are_refused() -> None:
    bad = np.ones((4, 3))
    bad[2, 1] = np.nan
    with pytest.raises(InputError, match="audio: row 2 is not finite"):
        make_clouds(bad, np.ones((4, 3)))
    with pytest.raises(InputError, match="3 dimensions and text 5"):
        make_clouds(np.ones((4, 3)), np.ones((4, 5)))
    with pytest.raises(InputError, match="no embeddings"):
        probes.probe_matched([])


def test_models_are_probed_at_the_same_n() -> None:
    small, large = make_clouds(*_pair(60)), make_clouds(*_pair(400, seed=1))
    alone = probes.probe(large, n_halves=0)["rankme_audio"]
    first, second = probes.probe_matched([small, large], n_halves=0)
    assert first["rankme_audio"].n == second["rankme_audio"].n == 60
    assert second["rankme_audio"].value < alone.value  # RankMe grows with n
    assert second["pair_auc"].value > 0.9  # pairs survive the thinning
    assert probes.probe_matched([small], n=30, n_halves=0)[0]["rankme_audio"].n == 30


def test_halves_keep_groups_and_captions_together() -> None:
    rng = np.random.default_rng(0)
    audio = rng.normal(size=(40, 6))
    text = np.repeat(audio, 3, axis=0)
    pairs = np.array([[i, 3 * i + k] for i in range(40) for k in range(3)])
    clouds = make_clouds(audio, text, pairs=pairs, groups=np.repeat(np.arange(20), 2))
    half = halves(clouds, rng)
    assert len(half.audio) == 20
    assert len(half.text) == 60  # type: ignore[arg-type]
    assert len(half.pairs) == 60
    np.testing.assert_allclose(half.audio[half.pairs[:, 0]], half.text[half.pairs[:, 1]])  # type: ignore[index]
    thinned = thin(clouds, 10, 12)
    assert len(thinned.audio) == 10
    assert len(thinned.pairs) == 12
    np.testing.assert_allclose(
        thinned.audio[thinned.pairs[:, 0]],
        thinned.text[thinned.pairs[:, 1]],  # type: ignore[index]
    )


def test_clouds_of_models_take_pairs_captions_or_classes() -> None:
    data, model = paired(12)
    clouds = clouds_of_model(model, data, PLAIN)
    assert (len(clouds.audio), len(clouds.text), len(clouds.pairs)) == (24, 24, 24)  # type: ignore[arg-type]
    data, model = captioned()
    clouds = clouds_of_model(model, data, PLAIN)
    assert (len(clouds.audio), len(clouds.text), len(clouds.pairs)) == (12, 36, 36)  # type: ignore[arg-type]
    np.testing.assert_allclose(
        clouds.audio[clouds.pairs[:, 0]],
        clouds.text[clouds.pairs[:, 1]],  # type: ignore[index]
        atol=1e-6,
    )
    data, model = labelled()
    clouds = clouds_of_model(model, data, PLAIN)
    assert (len(clouds.audio), len(clouds.text), len(clouds.pairs)) == (36, 6, 36)  # type: ignore[arg-type]


def test_audio_alone_where_nothing_is_said_or_nobody_reads() -> None:
    """Of clips without words, and of a model without a text side, the audio is still probed."""
    bare = dataset({"a": np.ones(D)}, [Clip(id="a")])
    assert clouds_of_model(FakeModel(), bare, PLAIN).text is None
    data, model = labelled()
    model.text = None
    clouds = clouds_of_model(model, data, PLAIN)
    assert clouds.text is None
    found = probes.probe(clouds, n_halves=2)
    assert {score.name for score in found.scores} >= {"rankme_audio", "twonn_audio"}
    assert not any(score.name.endswith("_text") for score in found.scores)
    assert "no text side" in found.details["reasons"]["text"]


def test_what_is_known_of_the_clips_is_in_the_result() -> None:
    data, model = labelled()
    clouds = clouds_of_model(model, data, PLAIN)
    clouds.provenance["skipped"] = {"a": "no audio"}
    details = probes.probe(clouds, n_halves=2).details
    assert details["skipped"] == {"a": "no audio"}
    assert "16 samples" in details["remarks"]["dog-0"]
    assert details["heard_before"]["of"] == len(data)


def test_clouds_of_files(tmp_path: Path) -> None:
    audio, text = _pair(20)
    np.savez(tmp_path / "both.npz", audio=audio, text=text, note=np.array([1, 2]))
    save_file({"audio": audio, "text": text}, tmp_path / "both.safetensors")
    np.save(tmp_path / "a.npy", audio)
    np.save(tmp_path / "t.npy", text)
    np.savez(tmp_path / "odd.npz", first=audio, second=text)
    expected = make_clouds(audio, text)
    for clouds in (
        clouds_of_files(tmp_path / "both.npz"),
        clouds_of_files(tmp_path / "both.safetensors"),
        clouds_of_files(tmp_path / "a.npy", tmp_path / "t.npy"),
    ):
        np.testing.assert_allclose(clouds.audio, expected.audio)
        np.testing.assert_allclose(clouds.text, expected.text)  # type: ignore[arg-type]
        assert len(clouds.pairs) == 20
    assert clouds_of_files(tmp_path / "a.npy").text is None
    with pytest.raises(InputError, match="first, second"):
        clouds_of_files(tmp_path / "odd.npz")
    with pytest.raises(InputError, match="no file"):
        read_arrays(tmp_path / "absent.npy")
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(InputError, match=r"not a \.npy"):
        read_arrays(tmp_path / "x.txt")
    evil = np.array([{"a": 1}], dtype=object)
    np.save(tmp_path / "evil.npy", evil, allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read as arrays"):
        read_arrays(tmp_path / "evil.npy")


def _cone(x: np.ndarray, strength: float) -> np.ndarray:
    return x + strength * np.ones(x.shape[1])


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda a, t: (a, t), "no failure found"),
        (lambda a, t: (a, _cone(t, 4.0)), "text anisotropy"),
        (lambda a, t: (_cone(a, 4.0), t), "audio collapse"),
        (lambda a, t: (a, t @ np.roll(np.eye(a.shape[1]), 7, axis=0)), "alignment"),
        (lambda a, t: (a, np.random.default_rng(9).normal(size=t.shape)), "alignment"),
    ],
)
def test_diagnosis_finds_what_was_broken(change: object, verdict: str) -> None:
    audio, text = change(*_pair(300))  # type: ignore[operator]
    card = compare.diagnose(make_clouds(audio, text))
    assert card.verdict == verdict, card
    if verdict == "alignment":
        fixable = card.numbers["auc_mapped"] - card.numbers["auc"] > 0.2
        assert ("know more than their alignment shows" in card.findings[0][1]) == fixable


def test_diagnosis_does_not_depend_on_scale_and_needs_pairs() -> None:
    audio, text = _pair(100)
    a, b = compare.compare([make_clouds(audio, text), make_clouds(1e4 * audio, 1e-3 * text)])
    assert a.numbers == pytest.approx(b.numbers)
    with pytest.raises(InputError, match="needs texts"):
        compare.diagnose(make_clouds(audio, None))
    with pytest.raises(InputError, match="no model"):
        compare.compare([])
    constant = compare.diagnose(make_clouds(np.ones((30, 5)), np.ones((30, 5))))
    assert {what for what, _ in constant.findings} >= {"text anisotropy", "audio collapse"}
