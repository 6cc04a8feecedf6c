"""The joint head in numpy equals the torch one; its derivative equals finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from joint_heads import KINDS, D, module
from tiny_model import tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.direct.joint_arrays import joint_of
from residual_audio.direct.joint_module import joint_head, joint_of_module
from residual_audio.errors import ModelError, StoreError
from residual_audio.extraction.extraction import extract
from residual_audio.models.joint import JointHead


@pytest.fixture(scope="module")
def dataset():
    return load_dataset("synthetic", n_clips=5, duration_s=1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_from_a_store_torch_from_a_store_and_the_model_agree(tmp_path, dataset, kind) -> None:
    model = tiny_model(head=module(kind), text=False)
    store = extract(model, dataset, tmp_path, device="cpu").store
    joint = store.embedding(unit=False)
    close = 1e-5 * np.abs(joint).max()
    np.testing.assert_allclose(joint_of(store)(store.latent()), joint, atol=close)
    latent = torch.from_numpy(np.array(store.latent()))
    np.testing.assert_allclose(joint_head(store).from_latent(latent), joint, atol=close)


@pytest.mark.parametrize("kind", KINDS)
def test_the_derivative_is_that_of_finite_differences_and_of_autograd(kind) -> None:
    head = module(kind)
    joint = joint_of_module(head)
    latent = np.random.default_rng(0).normal(size=(4, D))
    step = 1e-5
    slopes = []
    for row in latent:
        nudged = np.concatenate([row + step * np.eye(D), row - step * np.eye(D)])
        out = joint(nudged)
        slopes.append((out[:D] - out[D:]) / (2 * step))
    np.testing.assert_allclose(joint.derivative(latent), np.mean(slopes, axis=0), atol=1e-6)
    point = torch.from_numpy(latent[:1].astype(np.float32))
    exact = torch.autograd.functional.jacobian(head.from_latent, point)[0, :, 0].T
    np.testing.assert_allclose(joint.derivative(latent[:1]), exact, atol=1e-4)


class Other(JointHead):
    kind = "other"
    reads_latent = False

    def __init__(self) -> None:
        super().__init__()
        self.config = {"d_out": 3}
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, encoded):
        return encoded.tokens[:, 0, :3] * self.scale


def test_a_head_that_does_not_read_the_latent_says_so(tmp_path, dataset) -> None:
    found = extract(tiny_model(head=Other()), dataset, tmp_path, limit=3, device="cpu").store
    assert found.joint is None
    with pytest.raises(StoreError, match="run the model instead"):
        joint_of(found)
    with pytest.raises(StoreError, match="not a function of the pooled latent"):
        joint_head(found)
    with pytest.raises(ModelError, match="does not read"):
        joint_of_module(Other())
