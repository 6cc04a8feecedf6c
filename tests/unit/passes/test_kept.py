"""Features kept for runs again: what extraction heard, clips of any length, order kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from evaluation_fakes import dataset as fake_dataset
from tiny_model import SPEC, tiny_model
from torch import Tensor

from residual_audio.audio.frontend import LogMel
from residual_audio.errors import InputError
from residual_audio.extraction.extraction import extract
from residual_audio.models.joint import Identity
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.passes.kept import load_passes
from residual_audio.passes.lengths import Rows
from residual_audio.passes.loop import Hearing
from residual_audio.surface.model import Model
from residual_audio.types import Clip

NAMES = [f"c{i}" for i in range(5)]


def long_clips(*seconds: float):
    draw = np.random.default_rng(0)
    sounds = {f"c{i}": draw.normal(0, 0.1, round(8000 * s)) for i, s in enumerate(seconds)}
    return fake_dataset(sounds, [Clip(id=name) for name in sounds])


def any_length_model() -> Model:
    torch.manual_seed(0)
    frames = SPEC.count_frames(SPEC.n_samples)
    config = ViTConfig(
        width=8,
        depth=2,
        n_heads=2,
        hidden=16,
        n_mels=16,
        n_frames=frames,
        norm_eps=1e-6,
        patch=(8, 10),
        stride=(8, 10),
        chunks=True,
    )
    return Model(
        name="vit",
        family="test",
        front_end=LogMel(SPEC),
        encoder=ViT(config),
        head=Identity(8),
        text=None,
        logit_scale=1.0,
        sha256="a" * 64,
    )


@pytest.mark.parametrize("long", ["first", "center"])
def test_runs_again_hear_what_extraction_heard(tmp_path, long: str) -> None:
    model, data = tiny_model(), long_clips(3.0, 1.0, 2.5)
    store = extract(model, data, tmp_path, long=long).store
    ids = list(store.clips["id"])
    passes = load_passes(model, data, ids, Hearing(store.run_info.long))
    with torch.no_grad():
        joint = torch.cat([model.joint(model.encode(f)) for _, f in passes.batches()])
    np.testing.assert_allclose(joint, store.embedding(unit=False), atol=1e-5)


def test_clips_of_different_lengths_are_kept_and_come_one_length_at_a_time() -> None:
    model, data = any_length_model(), long_clips(1.0, 2.5, 1.0, 4.0, 2.5)
    passes = load_passes(model, data, NAMES, Hearing(batch_size=4))
    waves = [data.read(clip, 8000) for clip in data.clips]
    alone = model.embed_audio(waves, sample_rate=8000, batch_size=1)

    def unit(features: Tensor) -> Tensor:
        return torch.nn.functional.normalize(model.joint(model.encode(features)), dim=-1)

    with torch.no_grad():
        together = passes.features.run([4, 0, 3, 1, 2], unit)
        np.testing.assert_allclose(together, alone[[4, 0, 3, 1, 2]], atol=1e-5)
        seen = {}
        for clips, features in passes.batches(size=5, seed=1):
            seen |= dict(zip(clips.tolist(), unit(features), strict=True))
    np.testing.assert_allclose(torch.stack([seen[i] for i in range(5)]), alone, atol=1e-5)
    with pytest.raises(InputError, match="different lengths"):
        passes.take([0, 1])
    assert len(passes.take([1, 4])) == 2


def test_rows_are_found_by_number_and_too_many_bytes_are_refused() -> None:
    parts = [([2, 0], torch.tensor([[2.0], [0.0]])), ([1], torch.tensor([[1.0]]))]
    assert Rows.collect(parts, 3).take(slice(0, 3))[:, 0].tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="GB"):
        Rows.collect(parts, 3, max_bytes=8)
    with pytest.raises(InputError, match="no clip"):
        Rows.collect([], 0)
