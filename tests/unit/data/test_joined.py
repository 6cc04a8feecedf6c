"""Pairs joined from labelled clips: what is joined, what is heard, and what is said about it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from residual_audio.data.base import Dataset
from residual_audio.data.draws import Draws
from residual_audio.data.excerpts import LOUDER_DB, PITCH, Seam, excerpt, follow
from residual_audio.data.hashed import pair_is_in, source_is_in
from residual_audio.data.phrases import ESC50, phrases_of
from residual_audio.data.registry import load_dataset
from residual_audio.data.wordings import COMPARED, ORDER, QUALIFIED, tell
from residual_audio.errors import DatasetError, InputError

RATE = 8_000
TONES = {"hum": 200.0, "low tone": 450.0, "tone": 900.0, "whistle": 1700.0, "hiss": 3000.0}
TAKES, SOURCES = 2, 8


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pure tones: half a second of silence, two seconds of tone, and silence."""
    root = tmp_path_factory.mktemp("tones")
    t = np.arange(2 * RATE) / RATE
    for label, frequency in TONES.items():
        (root / label).mkdir()
        wave = np.concatenate([np.zeros(RATE // 2), 0.3 * np.sin(2 * np.pi * frequency * t)])
        wave = np.concatenate([wave, np.zeros(RATE)])
        for source in range(SOURCES):
            for take in range(TAKES):
                name = f"{label.replace(' ', '')}{source}-{take}.wav"
                soundfile.write(root / label / name, wave, RATE)
    return root


def joined(root: Path, **options: object) -> Dataset:
    return load_dataset("joined", root, of="folder", of_options={"group": r"(\w+)-"}, **options)


def parts(data: Dataset) -> list[tuple[str, str]]:
    """The two recordings of every item, as `label/source`."""
    found = []
    for pair in data.pairs:
        first, second = pair.id.split("+")
        found.append((first.rsplit("-", 1)[0], second.rsplit("-", 1)[0]))
    return found


def label_of(recording: str) -> str:
    return recording.partition("_")[0]


def heard(wave: np.ndarray) -> dict[str, float]:
    """Power at each tone's frequency, in decibels."""
    spectrum = np.abs(np.fft.rfft(wave * np.hanning(len(wave)))) ** 2
    frequency = np.fft.rfftfreq(len(wave), 1 / RATE)
    return {
        label: 10 * np.log10(spectrum[np.abs(frequency - f) < 30].sum() + 1e-12)
        for label, f in TONES.items()
    }


# what is joined


def test_never_one_class_and_never_one_source(tones: Path) -> None:
    data = joined(tones, n_items=500)
    assert len(data.pairs) > 200
    for first, second in parts(data):
        assert label_of(first) != label_of(second)
        assert first != second


def test_cells_share_no_recording(tones: Path) -> None:
    """So cells may be resampled, or split, without one source on both sides."""
    data = joined(tones, n_items=60)
    cell_of: dict[str, str] = {}
    for pair, recordings in zip(data.pairs, parts(data), strict=True):
        assert len({clip.group for clip in pair.clips}) == 1
        for recording in recordings:
            assert cell_of.setdefault(recording, pair.clips[0].group) == pair.clips[0].group
    assert len(set(cell_of.values())) > 2


def test_sources_are_on_one_side_only(tones: Path) -> None:
    sides = [joined(tones, n_items=900, sources=part) for part in ("train", "held-out")]
    used = [{name for two in parts(data) for name in two} for data in sides]
    assert used[0]
    assert used[1]
    assert not used[0] & used[1]


def test_class_pairs_are_on_one_side_only_in_either_order(tones: Path) -> None:
    used = []
    for part in ("train", "held-out"):
        data = joined(tones, n_items=900, class_pairs=part)
        used.append({frozenset(map(label_of, two)) for two in parts(data)})
    assert used[0]
    assert used[1]
    assert not used[0] & used[1]
    assert len(used[0] | used[1]) == len(TONES) * (len(TONES) - 1) // 2
    assert pair_is_in("a", "b", "train") == pair_is_in("b", "a", "train")
    assert all(source_is_in(str(i), "train") != source_is_in(str(i), "held-out") for i in range(99))


def test_synthetic_pairs_keep_to_their_class_pairs() -> None:
    used = []
    for part in ("train", "held-out"):
        data = load_dataset("synthetic", n_clips=120, kind="order", class_pairs=part)
        maker = data.make.__self__  # type: ignore[union-attr]
        used.append({frozenset(s.label for s in maker._two(i)) for i in range(60)})
    assert not used[0] & used[1]


def test_the_same_seed_gives_the_same_items_and_sounds(tones: Path) -> None:
    a, b, c = (joined(tones, n_items=8, seed=seed) for seed in (3, 3, 4))
    assert a.clips == b.clips
    assert a.fingerprint() == b.fingerprint() != c.fingerprint()
    assert a.clips != c.clips
    for clip in a.clips[:4]:
        np.testing.assert_array_equal(a.read(clip, RATE), b.read(clip, RATE))


def test_fold_and_missing_files_are_respected(tones: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no fold '9'"):
        joined(tones, folds=9)
    made = load_dataset(
        "joined", of="synthetic", of_options={"n_clips": 200}, folds="1,2", n_items=50
    )
    inside = load_dataset("synthetic", n_clips=200).select(folds=[1, 2])
    ids = {clip.id for clip in inside.clips}
    assert all(set(pair.id.split("+")) <= ids for pair in made.pairs)


def test_mistakes_are_named(tones: Path) -> None:
    for options, message in (
        ({"kind": "size"}, "no kind 'size'"),
        ({"wording": "loudly"}, "wording 'loudly'"),
        ({"wording": "{0} and {5}"}, "stand for the two sounds"),
        ({"class_pairs": "some"}, "class_pairs 'some'"),
        ({"attribute": "pitch"}, "of kind order"),
        ({"n_items": 0}, "0 items"),
    ):
        with pytest.raises(InputError, match=message):
            joined(tones, **options)
    with pytest.raises(InputError, match="joined again"):
        load_dataset("joined", tones, of="joined")


# what is heard


def test_order_is_heard_and_exchanged(tones: Path) -> None:
    data = joined(tones, n_items=12, duration_s=3.0)
    for pair, (first, second) in zip(data.pairs, parts(data), strict=True):
        a, b = (data.read(clip, RATE) for clip in pair.clips)
        assert len(a) == len(b) == 3 * RATE
        for wave, (early, late) in ((a, (first, second)), (b, (second, first))):
            halves = heard(wave[: RATE // 2]), heard(wave[-RATE // 2 :])
            assert halves[0][label_of(early)] > halves[0][label_of(late)] + 20
            assert halves[1][label_of(late)] > halves[1][label_of(early)] + 20
        assert np.abs(a).max() <= 0.95


def test_the_cross_fade_keeps_the_power() -> None:
    rng = np.random.default_rng(0)
    waves = [rng.standard_normal(5 * RATE).astype(np.float32) for _ in range(2)]
    joint = replace(Seam.draw(Draws(0)), balance_db=0.0, level_db=-20.0)
    for exchanged in (False, True):
        wave = follow(waves, RATE, 3 * RATE, joint, exchanged)
        rms = np.sqrt(np.mean(wave.reshape(-1, RATE // 20) ** 2, axis=1))
        assert rms.min() > 0.8 * rms.max()


@pytest.mark.parametrize("attribute", ["loudness", "distance"])
def test_the_louder_one_is_louder(tones: Path, attribute: str) -> None:
    data = joined(tones, n_items=10, kind="attribute", attribute=attribute)
    for pair, (first, second) in zip(data.pairs, parts(data), strict=True):
        a, b = (heard(data.read(clip, RATE)) for clip in pair.clips)
        a_first = a[label_of(first)] - a[label_of(second)]
        b_first = b[label_of(first)] - b[label_of(second)]
        assert a_first > b_first + 10
        if attribute == "loudness":
            assert a_first - b_first == pytest.approx(2 * LOUDER_DB, abs=3)


def test_pitch_moves_up_and_down(tones: Path) -> None:
    data = joined(tones, n_items=10, kind="attribute", attribute="pitch")
    pair = next(
        p for p, (x, y) in zip(data.pairs, parts(data), strict=True) if label_of(x) == "low tone"
        or label_of(y) == "low tone"
    )  # fmt: skip
    up_in_a = label_of(parts(data)[list(data.pairs).index(pair)][0]) == "low tone"
    for clip, up in zip(pair.clips, (up_in_a, not up_in_a), strict=True):
        wave = data.read(clip, RATE)
        spectrum = np.abs(np.fft.rfft(wave))
        frequency = np.fft.rfftfreq(len(wave), 1 / RATE)
        power = {way: spectrum[np.abs(frequency - 450 * PITCH**way) < 10].max() for way in (1, -1)}
        assert power[1 if up else -1] > 5 * power[-1 if up else 1]


def test_excerpts_are_where_the_sound_is() -> None:
    wave = np.zeros(5 * RATE, np.float32)
    wave[4 * RATE : 4 * RATE + 400] = 1.0
    for place in (0.0, 0.5, 0.999):
        assert excerpt(wave, RATE, RATE, place).sum() == 400
    assert len(excerpt(wave[:100], RATE, RATE, 0.0)) == RATE  # a short one is repeated
    assert not excerpt(np.zeros(RATE, np.float32), RATE, 100, 0.3).any()


# what is said


def test_no_frame_is_both_trained_and_held_out() -> None:
    trained = " ".join(ORDER["plain"] + ORDER["many"])
    assert not {*ORDER["plain"], *ORDER["many"]} & set(ORDER["held-out"])
    assert not {*QUALIFIED["plain"], *QUALIFIED["many"]} & set(QUALIFIED["held-out"])
    assert set(ORDER["plain"]) <= set(ORDER["many"])
    assert set(QUALIFIED["plain"]) <= set(QUALIFIED["many"])
    for words in ("before that", "preceded", "precedes", "gives way", "succeeded", "wake of"):
        assert words not in trained
    for frames in COMPARED.values():
        assert not set(frames["many"]) & set(frames["held-out"])


def test_half_of_the_order_frames_name_the_later_sound_first() -> None:
    for frames in (ORDER["many"], ORDER["held-out"]):
        assert len(frames) == len(set(frames))
        later_first = sum(frame.index("{1}") < frame.index("{0}") for frame in frames)
        assert later_first == len(frames) / 2


@pytest.mark.parametrize("kind", ["order", "attribute"])
@pytest.mark.parametrize("wording", ["plain", "many", "held-out"])
def test_exchanged_captions_have_the_same_words(tones: Path, kind: str, wording: str) -> None:
    data = joined(tones, n_items=60, kind=kind, wording=wording)
    for pair in data.pairs:
        first, second = (clip.captions for clip in pair.clips)
        assert len(first) == len(second)
        for a, b in zip(first, second, strict=True):
            assert a != b
            assert Counter(a.lower().replace(",", "").replace(";", "")) == Counter(
                b.lower().replace(",", "").replace(";", "")
            ) or {w for w in a.lower().split() if len(w) > 2} == {
                w for w in b.lower().split() if len(w) > 2
            }
        assert pair.captions == (first[0], second[0])


def test_unordered_captions_tell_nothing(tones: Path) -> None:
    told, untold = joined(tones, n_items=9), joined(tones, n_items=9, wording="unordered")
    assert [pair.id for pair in told.pairs] == [pair.id for pair in untold.pairs]
    for pair in untold.pairs:
        assert pair.clips[0].captions == pair.clips[1].captions
        assert " and " in pair.captions[0]
    np.testing.assert_array_equal(
        told.read(told.clips[1], RATE), untold.read(untold.clips[1], RATE)
    )


def test_a_frame_of_ones_own() -> None:
    said = tell("order", "", "{1} preceded by {0}", (("a dog",), ("rain",)), Draws(0), 3)
    assert said == (("Rain preceded by a dog",), ("A dog preceded by rain",))


def test_every_name_of_a_class_is_a_phrase() -> None:
    assert phrases_of("dog")[0] == "a dog"
    assert phrases_of("something new") == ("something new", "the sound of something new")
    assert len(ESC50) == 50


def test_compa_takes_joined_pairs(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from residual_audio.cli import main

    given = f"compa -d joined --root {tones} -o {tmp_path} --no-cache --json"
    options = "--data-option of=folder --data-option n_items=2"
    monkeypatch.setattr("sys.argv", ["residual-audio", *given.split(), *options.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    written = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert len(written) == 1
    assert 0 <= written[0]["details"]["h_swap"] <= 1
