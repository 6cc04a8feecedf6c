"""Loading: one door, no pickle that runs, errors that name what is wrong, layouts that go round."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from heard import embed_audio
from safetensors.torch import load_file, save_file
from small_clap import save_small_clap, small_clap
from transformers import ClapFeatureExtractor, ClapModel

from residual_audio.embeddings.of_files import embed_files
from residual_audio.errors import AudioError, InputError, ModelError
from residual_audio.evaluation.classify import classify
from residual_audio.models import hf, native
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.layouts import write_model
from residual_audio.models.proof import prove
from residual_audio.models.registry import load_model
from residual_audio.models.weights import read_pickle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_clap(tmp_path_factory.mktemp("clap"))


@pytest.fixture(scope="module")
def model(folder: Path) -> AudioTextModel:
    return load_model(f"hf:{folder}", device="cpu")


def noise(seconds: float, rate: int = 48_000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 0.1, int(seconds * rate)).astype(np.float32)


def test_equals_transformers_from_the_waveform(folder: Path, model: AudioTextModel) -> None:
    theirs = ClapModel.from_pretrained(folder).eval()
    extractor = ClapFeatureExtractor.from_pretrained(folder)
    waves = [noise(10), noise(3.3, seed=1), noise(0.5, seed=2)]
    features = extractor(waves, sampling_rate=48_000, return_tensors="pt")["input_features"]
    with torch.inference_mode():
        found = theirs.get_audio_features(input_features=features)
    expected = getattr(found, "pooler_output", found)
    np.testing.assert_allclose(embed_audio(model, waves), expected.numpy(), atol=1e-5)


def test_the_same_file_gives_the_same_embedding(tmp_path: Path, model: AudioTextModel) -> None:
    files = []
    for i, seconds in enumerate((30.0, 10.0, 2.0, 7.7, 0.3)):
        files.append(tmp_path / f"{i}.wav")
        soundfile.write(files[-1], noise(seconds, seed=i), 48_000)
    reference = embed_audio(model, files, batch_size=2)
    assert np.array_equal(reference, embed_audio(model, files, batch_size=2))
    np.testing.assert_allclose(np.linalg.norm(reference, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(embed_audio(model, files, batch_size=5), reference, atol=1e-6)
    np.testing.assert_allclose(embed_audio(model, files[::-1])[::-1], reference, atol=1e-6)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        np.testing.assert_allclose(embed_audio(model, files, n_threads=1), reference, atol=1e-6)
    finally:
        torch.set_num_threads(threads)


def test_long_clips_follow_a_named_policy(model: AudioTextModel) -> None:
    wave = noise(25)
    first = embed_audio(model, [wave], long="first")
    np.testing.assert_allclose(first, embed_audio(model, [wave[:480_000]]), atol=1e-6)
    center = embed_audio(model, [wave], long="center")
    np.testing.assert_allclose(center, embed_audio(model, [wave[360_000:840_000]]), atol=1e-6)
    tiles = embed_audio(model, [wave[:480_000], wave[480_000:960_000], wave[-480_000:]]).mean(0)
    tile = embed_audio(model, [wave], long="tile")[0]
    np.testing.assert_allclose(tile, tiles / np.linalg.norm(tiles), atol=1e-5)


def test_fusion_model_equals_transformers_and_ignores_its_batch(tmp_path: Path) -> None:
    theirs = small_clap(fusion=True)
    theirs.save_pretrained(tmp_path)
    ClapFeatureExtractor(
        truncation="fusion", padding="repeatpad", frequency_min=50, frequency_max=14000
    ).save_pretrained(tmp_path)
    ours = load_model(f"hf:{tmp_path}", device="cpu")
    short, long = noise(4), noise(23, seed=1)
    together = embed_audio(ours, [short, long])
    np.testing.assert_allclose(together[:1], embed_audio(ours, [short]), atol=1e-5)
    np.testing.assert_allclose(together[1:], embed_audio(ours, [long]), atol=1e-5)
    mels, longer = ours.front_end(torch.from_numpy(ours.windows(long)))
    assert longer.tolist() == [True]
    with torch.inference_mode():
        found = theirs.get_audio_features(input_features=mels, is_longer=longer[:, None])
    expected = getattr(found, "pooler_output", found)
    np.testing.assert_allclose(together[1:], expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("layout", ["native", "hf", "laion"])
def test_written_models_give_the_same_embeddings(
    tmp_path: Path, model: AudioTextModel, layout: str
) -> None:
    out = tmp_path / ("model.pt" if layout == "laion" else "model")
    write_model(model, out, layout)
    if layout == "laion":
        from residual_audio.models import laion

        again = laion.load(str(out), text_heads=2, quantise=False)
    else:
        again = load_model(str(out) if layout == "native" else f"hf:{out}", device="cpu")
    wave = noise(5)
    np.testing.assert_allclose(embed_audio(again, [wave]), embed_audio(model, [wave]), atol=1e-6)
    ids, mask = torch.tensor([[0, 5, 9, 2]]), torch.ones(1, 4, dtype=torch.long)
    assert model.text is not None
    assert again.text is not None
    expected = model.text.encode(input_ids=ids, attention_mask=mask)
    got = again.text.encode(input_ids=ids, attention_mask=mask)
    tolerance = 1e-3 if layout == "laion" else 1e-6  # RoBERTa's LayerNorm ε is 1e-5, HF's 1e-12
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=0)
    assert again.logit_scale == pytest.approx(model.logit_scale, rel=1e-6)
    with pytest.raises(ModelError, match="nothing was written"):
        write_model(model, out, layout)


def test_hf_folder_opens_in_transformers(tmp_path: Path, model: AudioTextModel) -> None:
    write_model(model, tmp_path / "out", "hf")
    theirs, report = ClapModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    features = model.front_end(torch.from_numpy(model.windows(noise(4))))
    with torch.inference_mode():
        found = theirs.eval().get_audio_features(input_features=features[:, None])
    expected = getattr(found, "pooler_output", found)
    np.testing.assert_allclose(embed_audio(model, [noise(4)]), expected.numpy(), atol=1e-5)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return (eval, ("open('pwned', 'w').write('x')",))


@pytest.mark.parametrize("family", ["laion", "msclap", "mga", "m2d"])
def test_a_malicious_pickle_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, payload in (
        ("zip.pt", {"state_dict": Evil()}),
        ("bare.pt", None),
    ):
        if payload is None:
            (tmp_path / name).write_bytes(pickle.dumps(Evil(), protocol=2))
        else:
            torch.save(payload, tmp_path / name)
        with pytest.raises(ModelError):
            load_model(f"{family}:{tmp_path / name}", device="cpu")
    assert not (tmp_path / "pwned").exists()


def test_numpy_scalars_of_optimizers_are_harmless(tmp_path: Path) -> None:
    torch.save({"lr": np.float64(0.5), "state": {"x": torch.ones(2)}}, tmp_path / "c.pt")
    assert read_pickle(tmp_path / "c.pt")["lr"] == 0.5


def test_a_checkpoint_of_another_family_is_named(tmp_path: Path, folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    torch.save({"model": tensors, "state_dict": tensors}, tmp_path / "hf.pt")
    for family in ("laion", "msclap", "mga"):
        with pytest.raises(ModelError, match=r"hf\.pt.*not"):
            load_model(f"{family}:{tmp_path / 'hf.pt'}", device="cpu")
    cnn = {"model": {"audio_encoder.base.conv_block1.conv1.weight": torch.zeros(1)}}
    torch.save(cnn, tmp_path / "2022.pth")
    with pytest.raises(ModelError, match="2022"):
        load_model(f"msclap:{tmp_path / '2022.pth'}", device="cpu")


@pytest.mark.parametrize(
    "damage", ["missing", "shape", "unknown", "nan", "truncated", "config", "type"]
)
def test_a_damaged_folder_says_what_is_wrong(tmp_path: Path, folder: Path, damage: str) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    key = "audio_model.audio_encoder.layers.2.blocks.3.attention.output.dense.weight"
    expected = {
        "missing": r"missing.*stages\.2\.3\.proj\.weight",
        "shape": r"wrong shape.*stages\.2\.3\.proj\.weight",
        "unknown": r"unknown.*surprise",
        "nan": "not finite",
        "truncated": "not a readable safetensors",
        "config": r"no config\.json",
        "type": "not CLAP",
    }[damage]
    if damage == "missing":
        del tensors[key]
    elif damage == "shape":
        tensors[key] = torch.zeros(3, 3)
    elif damage == "unknown":
        tensors["audio_model.audio_encoder.surprise"] = torch.zeros(1)
    elif damage == "nan":
        tensors[key] = torch.full_like(tensors[key], float("nan"))
    save_file(tensors, weights)
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "config":
        (tmp_path / "config.json").unlink()
    elif damage == "type":
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ModelError, match=expected):
        load_model(f"hf:{tmp_path}", device="cpu")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("clip", "unknown model 'clip'"),
        ("laion:", "lacks a reference"),
        ("laion:/nowhere.pt", "no file"),
        ("hf:./nowhere", "neither a folder nor a repository"),
        ("htsat-tiny-random:x", "whole number"),
    ],
)
def test_unknown_names_are_refused(name: str, expected: str) -> None:
    with pytest.raises(ModelError, match=expected):
        load_model(name, device="cpu")


def test_offline_and_not_cached_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub

    def offline(*_: object, **__: object) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelError, match="hf download owner/name"):
        hf.find_folder("owner/name")
    with pytest.raises(
        ModelError, match=r"owner/name --revision v2 --local-dir name.*whisper:name"
    ):
        hf.find_folder("owner/name@v2", "whisper")


def test_missing_tokenizer_says_what_to_do(model: AudioTextModel) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        model.embed_text(["a dog"])


def test_audio_only_models_say_so() -> None:
    model = load_model("htsat-tiny-random", device="cpu")
    assert load_model("htsat-tiny-random:1", device="cpu").sha256 != model.sha256
    assert load_model("htsat-tiny-random:0", device="cpu").sha256 == model.sha256
    with pytest.raises(ModelError, match="audio-only"):
        classify(model, [noise(1)], ["dog"])


def test_a_broken_encoder_is_caught_at_load(model: AudioTextModel, tmp_path: Path) -> None:
    write_model(model, tmp_path / "m", "native")
    broken = native.load(tmp_path / "m")
    broken.encoder.output_projection = lambda site: (  # type: ignore[method-assign]
        torch.zeros(site.width, site.width),
        torch.zeros(site.width),
    )
    with pytest.raises(ModelError, match=r"heads do not sum.*s0\.b0"):
        prove(broken)


def test_embed_files_skips_bad_ones_and_keeps_the_rest(
    tmp_path: Path, model: AudioTextModel
) -> None:
    good, bad = tmp_path / "good.wav", tmp_path / "bad.wav"
    soundfile.write(good, noise(1), 48_000)
    bad.write_text("not audio")
    found = embed_files(model, [good, bad, good], tmp_path / "out.safetensors")
    assert found.files == (good, good)
    assert list(found.skipped) == [str(bad)]
    assert load_file(tmp_path / "out.safetensors")["embeddings"].shape == (2, 24)
    with pytest.raises(AudioError, match=r"bad\.wav"):
        embed_audio(model, [bad])
    with pytest.raises(InputError, match="none of the 1 files"):
        embed_files(model, [bad], tmp_path / "none.safetensors")
    assert not (tmp_path / "none.safetensors").exists()


def test_single_items_are_refused(model: AudioTextModel) -> None:
    with pytest.raises(InputError, match="list"):
        embed_audio(model, "dog.wav")  # type: ignore[arg-type]
    assert embed_audio(model, []).shape == (0, 24)
