"""Units from elsewhere: two kinds of file, laid over the clips of a run, refused where they lie."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from atlas_pieces import piece
from safetensors.numpy import save_file

import residual_audio as ra
from residual_audio.atlas.feature_pages import FeaturePages
from residual_audio.atlas.features import read_features
from residual_audio.errors import InputError


def test_activations_find_their_clips_in_any_order(small_atlas_run: Path, tmp_path: Path):
    store = ra.open_store(small_atlas_run)
    ids = [str(i) for i in store.clips["id"]]
    clips = [*ids[:0:-1], "one that the run does not have"]  # not the first, the others backwards
    values = np.arange(2.0 * len(clips)).reshape(len(clips), 2)
    listed = [{"name": n, "activations": values[:, i].tolist()} for i, n in enumerate("ab")]
    path = tmp_path / "sae.json"
    path.write_text(json.dumps({"name": "mine", "clips": clips, "features": listed}))
    found = read_features(path, store)
    assert np.isnan(found.activations[:, 0]).all()
    assert found.activations[0, 1] == values[clips.index(ids[1]), 0]
    assert found.activations[1, -1] == values[clips.index(ids[-1]), 1]
    pages = dict(FeaturePages(found, store).pieces())
    top = [row for row, _ in pages[0]["top"]]
    assert top[0] == int(np.nanargmax(found.activations[0]))
    assert 0 not in top


def test_directions_lay_the_clips_of_the_run_and_are_put_in_words(
    small_atlas_run: Path, tmp_path: Path
):
    store = ra.open_store(small_atlas_run)
    latent = np.asarray(store.latent(), np.float64)
    directions = np.random.default_rng(0).normal(size=(3, latent.shape[1]))
    path = tmp_path / "sae.safetensors"
    save_file({"directions": directions}, path, {"features": json.dumps(["x", "y", "z"])})
    ra.atlas(small_atlas_run, out=tmp_path / "atlas", features=path)
    main, page = piece(tmp_path, "main"), piece(tmp_path, "feature/1")
    assert main["features"]["name"] == ["x", "y", "z"]
    along = (latent - latent.mean(0)) @ directions[1] / np.linalg.norm(directions[1])
    assert page["top"][0][0] == int(along.argmax())
    assert page["top"][0][1] == pytest.approx(along.max(), rel=1e-4)
    assert page["low"][0][0] == int(along.argmin())
    assert page["words"]["texts"]
    mean = {row[0]: row[2] for row in page["classes"]}
    label = str(store.clips["label"][0])
    own = [str(v) == label for v in store.clips["label"]]
    assert mean[label] == pytest.approx(along[own].mean(), rel=1e-4)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"features": []}, "0 features"),
        ({"features": [{"name": "a"}]}, "neither activations nor directions"),
        ({"features": [{"activations": [1.0]}]}, "need"),
        ({"features": [{"direction": [1.0, 2.0]}]}, "latent of"),
        ({"features": [{"direction": ["x"]}]}, "no lists of numbers"),
        ({"clips": ["?"], "features": [{"activations": [1.0]}]}, "none of its 1 clips"),
        ({"clips": ["?", "?"], "features": [{"activations": [1.0, 2.0]}]}, "twice"),
        ({"clips": ["?"], "features": [{"activations": [1e999]}]}, "infinity"),
        ({"clips": 3, "features": [{"activations": [1.0]}]}, "no list of clip ids"),
    ],
)
def test_what_does_not_fit_is_refused(
    small_atlas_run: Path, tmp_path: Path, held: dict[str, object], said: str
):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(held))
    with pytest.raises(InputError, match=said):
        read_features(path, ra.open_store(small_atlas_run))
    with pytest.raises(InputError, match="no file of features"):
        read_features(tmp_path / "none.json", ra.open_store(small_atlas_run))


def autoencoder(folder: Path, width: int) -> Path:
    """Four units that read single numbers of the latent, as SAELens would write them."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    weights = {
        "W_enc": np.eye(width, 4, dtype=np.float32),
        "W_dec": draw.normal(size=(4, width)).astype(np.float32),
        "b_enc": np.array([0, 0, 0, -1e9], np.float32),  # the last is never on
        "b_dec": np.zeros(width, np.float32),
    }
    save_file(weights, folder / "sae_weights.safetensors")
    config = {"architecture": "standard", "d_in": width, "d_sae": 4}
    (folder / "cfg.json").write_text(json.dumps(config))
    return folder


def test_an_autoencoder_of_saelens_is_laid_over_the_clips(small_atlas_run: Path, tmp_path: Path):
    store = ra.open_store(small_atlas_run)
    latent = store.latent()
    folder = autoencoder(tmp_path / "mine", latent.shape[1])
    found = read_features(folder, store)
    np.testing.assert_allclose(found.activations[:3], np.maximum(latent[:, :3], 0).T, atol=1e-6)
    assert found.name.startswith("mine: standard, ")
    assert "of 4 units active in a clip" in found.name
    pages = dict(FeaturePages(found, store).pieces())
    assert pages[3]["top"] == []
    assert all(value > 0 for page in pages.values() for _, value in page["top"])
    with pytest.raises(InputError, match="reads a latent of 7"):
        read_features(autoencoder(tmp_path / "other", 7), store)
    with pytest.raises(InputError, match="no folder of an autoencoder"):
        read_features(tmp_path, store)
