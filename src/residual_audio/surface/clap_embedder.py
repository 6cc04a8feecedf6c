"""A model as a scikit-learn transformer: sounds in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from residual_audio.audio.windows import LongPolicy
from residual_audio.surface.model import Model, load_model

Sounds = Sequence[str | Path | npt.NDArray[Any]] | npt.NDArray[Any]
"""Paths, waveforms, or waveforms of one length as rows of an array."""


class ClapEmbedder(TransformerMixin, BaseEstimator):
    """Paths of sound files, or waveforms of `sample_rate` Hz → unit vectors [n, d].

    Nothing is learnt: `fit` looks at what it is given and loads the model. Only parameters are
    pickled, not weights, so a saved pipeline is small.

    >>> import numpy as np, residual_audio as ra
    >>> noise = np.random.default_rng(0).normal(size=(2, 16000)) / 10
    >>> ra.ClapEmbedder(sample_rate=16000).fit_transform(noise).shape
    (2, 256)
    """

    def __init__(
        self,
        model: str = "nano",
        *,
        sample_rate: int | None = None,
        long: LongPolicy = "first",
        batch_size: int = 8,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.sample_rate = sample_rate
        self.long = long
        self.batch_size = batch_size
        self.device = device

    def fit(self, X: Sounds, y: object = None) -> ClapEmbedder:
        """Load the model; `y` is ignored."""
        self._sounds(X, reset=True)
        self.n_features_out_ = _loaded(self.model, self.device).joint_dim
        return self

    def transform(self, X: Sounds) -> npt.NDArray[np.float32]:
        """[n, d], one row a sound."""
        check_is_fitted(self)
        sounds = self._sounds(X, reset=False)
        return _loaded(self.model, self.device).embed_audio(
            sounds, sample_rate=self.sample_rate, long=self.long, batch_size=self.batch_size
        )

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[Any]:
        """`clap0`, `clap1` …"""
        check_is_fitted(self)
        return np.array([f"clap{i}" for i in range(self.n_features_out_)], dtype=object)

    def _sounds(self, sounds: Sounds, *, reset: bool) -> list[Any]:
        """One entry a sound; an array of numbers is checked as scikit-learn checks its input."""
        listed = _listed(sounds)
        if listed is not None:
            return listed
        rows: npt.NDArray[Any] = validate_data(self, sounds, reset=reset, dtype=[np.float32])
        return list(rows)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        tags.requires_fit = True
        return tags


def _listed(sounds: object) -> list[Any] | None:
    """Paths, or waveforms of different lengths; None for numbers in rows and columns."""
    if isinstance(sounds, list | tuple):
        items = list(sounds)
    else:
        array = None if issparse(sounds) else np.asarray(sounds)
        if array is None or array.ndim != 1 or array.dtype.kind not in "UO":
            return None
        items = array.tolist()
    if items and all(isinstance(item, str | Path) for item in items):
        return [Path(item) for item in items]
    shapes = {np.shape(item) for item in items}
    return items if len(shapes) > 1 else None


@lru_cache(maxsize=2)
def _loaded(name: str, device: str) -> Model:
    return load_model(name, device)
