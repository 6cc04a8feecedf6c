"""MTEB runs a task of its own with our models and writes its own result file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import datasets
import mteb
import numpy as np
import pytest
import soundfile
import torch
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.abstasks.zeroshot_classification import AbsTaskZeroShotClassification
from mteb.models.models_protocols import EncoderProtocol
from small_clap import save_small_clap
from transformers import ClapFeatureExtractor, ClapModel

import residual_audio as ra
from residual_audio.errors import AudioError, InputError
from residual_audio.mteb import encoder

CLASSES = ("rain", "siren")


def as_wav(wave: np.ndarray, rate: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, wave, rate, format="WAV", subtype="FLOAT")
    return file.getvalue()


@pytest.fixture(scope="module")
def sounds() -> datasets.Dataset:
    made = ra.load_dataset("synthetic", n_clips=246).select(classes=list(CLASSES))
    rows = [{"bytes": as_wav(made.read(c, 32_000, 5.0), 32_000), "path": None} for c in made.clips]
    labels = [CLASSES.index(str(clip.label)) for clip in made.clips]
    table = datasets.Dataset.from_dict({"audio": rows, "label": labels})
    return table.cast_column("audio", datasets.Audio(decode=False))


def small_task(table: datasets.Dataset) -> AbsTaskZeroShotClassification:
    class Small(AbsTaskZeroShotClassification):
        metadata = TaskMetadata(
            name="SmallZeroShot",
            description="Synthetic rain and sirens.",
            reference=None,
            dataset={"path": "local/none", "revision": "1"},
            type="AudioZeroshotClassification",
            category="a2t",
            modalities=["audio", "text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="accuracy",
            date=None,
            domains=None,
            task_subtypes=None,
            license=None,
            annotations_creators=None,
            dialect=None,
            sample_creation=None,
            bibtex_citation=None,
        )
        input_column_name = "audio"
        label_column_name = "label"

        def load_data(self, **about: object) -> None:
            self.dataset = datasets.DatasetDict({"test": table})
            self.data_loaded = True

        def get_candidate_labels(self) -> list[str]:
            return [f"This is a sound of {name}." for name in CLASSES]

    return Small()


def some_gains() -> ra.Gains:
    spectrum = ra.Spectrum(np.zeros(12), np.eye(12), np.ones(12), 100)
    units = [f"s3.b1.h{h}" for h in range(32)]
    return ra.Gains({u: np.zeros(12) for u in units}, dict.fromkeys(units, spectrum))


def test_mteb_runs_a_task_and_writes_its_own_result(sounds, tmp_path: Path) -> None:
    model = encoder("nano")
    assert isinstance(model, EncoderProtocol)
    cache = mteb.ResultCache(cache_path=tmp_path)
    found = mteb.evaluate(model, small_task(sounds), cache=cache, encode_kwargs={"batch_size": 8})
    score = found.task_results[0].get_score()
    # the same from our own evaluation
    texts = [f"This is a sound of {name}." for name in CLASSES]
    waves = [soundfile.read(io.BytesIO(r["audio"]["bytes"]), dtype="float32")[0] for r in sounds]
    vectors = model.model.embed_audio(waves, sample_rate=32_000)
    answers = (vectors @ model.model.embed_text(texts).T).argmax(1)
    assert score == pytest.approx((answers == np.array(sounds["label"])).mean())
    files = list(tmp_path.rglob("SmallZeroShot.json"))
    assert len(files) == 1
    assert json.loads(files[0].read_text())["task_name"] == "SmallZeroShot"
    meta = model.mteb_model_meta
    assert meta.name == "residual-audio/nano"
    assert meta.embed_dim == 256


def test_gains_change_the_vectors_and_the_name(sounds) -> None:
    plain, edited = encoder("nano"), encoder("nano", some_gains())
    loader = SimpleNamespace(dataset=sounds.select(range(2)))
    assert np.abs(plain.encode(loader) - edited.encode(loader)).max() > 1e-3
    assert edited.mteb_model_meta.name.startswith("residual-audio/nano-edited-")
    assert edited.mteb_model_meta.revision != plain.mteb_model_meta.revision


def test_arrays_stereo_and_other_rates_are_heard_alike(sounds) -> None:
    model = encoder("nano")
    wave = soundfile.read(io.BytesIO(sounds[0]["audio"]["bytes"]), dtype="float32")[0]
    both = np.stack([wave, wave])
    rows = [
        {"array": wave.tolist(), "sampling_rate": 32_000},
        {"array": wave.tolist(), "sampling_rate": 32_000},
    ]
    table = datasets.Dataset.from_dict({"audio": rows})
    found = model.encode(SimpleNamespace(dataset=table))
    want = model.encode(SimpleNamespace(dataset=sounds.select([0])))
    np.testing.assert_allclose(found, np.repeat(want, 2, 0), atol=1e-6)
    stereo = datasets.Dataset.from_dict({"audio": [{"bytes": as_wav(both.T, 32_000)}]})
    np.testing.assert_allclose(model.encode(SimpleNamespace(dataset=stereo)), want, atol=1e-6)


def test_text_and_sound_together_are_summed(sounds) -> None:
    model = encoder("nano")
    some = sounds.select([0])
    both = model.encode(SimpleNamespace(dataset=some.add_column("text", ["rain"])))
    sound = model.encode(SimpleNamespace(dataset=some))
    np.testing.assert_allclose(both, sound + model.model.embed_text(["rain"]), atol=1e-6)
    np.testing.assert_allclose(model.similarity(sound, sound), [[1.0]], atol=1e-6)
    np.testing.assert_allclose(model.similarity_pairwise(sound, sound), [1.0], atol=1e-6)


def test_what_cannot_be_heard_or_embedded_is_named() -> None:
    model = encoder("nano")
    bad = datasets.Dataset.from_dict({"audio": [{"bytes": b"RIFFnothing"}]})
    with pytest.raises(AudioError, match="sound 0"):
        model.encode(SimpleNamespace(dataset=bad))
    with pytest.raises(InputError, match="image"):
        model.encode(SimpleNamespace(dataset=datasets.Dataset.from_dict({"image": [1]})))
    with pytest.raises(InputError, match="preset"):
        encoder("nano", preset="other")  # type: ignore[arg-type]


def test_the_leaderboard_preset_rounds_as_its_wrapper_does(tmp_path: Path) -> None:
    """The steps of MTEB's CLAP wrapper, by transformers, against ours."""
    folder = save_small_clap(tmp_path / "clap")
    wave = np.random.default_rng(0).normal(0, 2e-5, 480_000).astype(np.float32)
    rounded = (np.clip(wave, -1, 1) * 32767.0).astype(np.int16) / np.float32(32767.0)
    extractor = ClapFeatureExtractor.from_pretrained(folder)
    features = extractor(rounded, sampling_rate=48_000, return_tensors="pt")["input_features"]
    theirs = ClapModel.from_pretrained(folder).eval()
    with torch.no_grad():
        out = theirs.get_audio_features(input_features=features)
    want = torch.nn.functional.normalize(getattr(out, "pooler_output", out), dim=-1).numpy()
    rows = [{"array": wave, "sampling_rate": 48_000}]
    loader = SimpleNamespace(dataset=datasets.Dataset.from_dict({"audio": rows}))
    model = ra.load_model(f"hf:{folder}", "cpu")
    board, own = encoder(model, preset="leaderboard"), encoder(model)
    np.testing.assert_allclose(board.encode(loader), want, atol=1e-5)
    heard = [e.model.features(torch.from_numpy(wave)[None]) for e in (board, own)]
    np.testing.assert_allclose(heard[0], features[:, 0], atol=1e-3)
    assert (heard[1] - heard[0]).abs().max() > 1  # dB: most of this wave is below one step
    assert board.model.text.tokenizer_spec.max_length == 77
    assert model.text.tokenizer_spec.max_length == 512  # what was given stays as it is
    assert not model.spec.quantise
