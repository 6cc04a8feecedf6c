"""The model that people hold in their hands: everything of `AudioTextModel`, and the verbs."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import torch

from residual_audio.audio.windows import LongPolicy
from residual_audio.capture.cache import Cache
from residual_audio.errors import InputError, ModelError
from residual_audio.models import registry
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.edited import EditedEncoder, PassChange
from residual_audio.models.encoder import Encoder
from residual_audio.models.layouts import write_model
from residual_audio.passes.changes import site_change
from residual_audio.passes.edits import Patch, UnitEdits
from residual_audio.passes.embed import AudioVectors, embed_items
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import AudioInput, cut_inputs
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.acting import gains_change
from residual_audio.reweight.gains import check_fits
from residual_audio.surface.running import keep_run, name_of
from residual_audio.types import Gains, UnitLike, parse_units

EditLike = UnitEdits | Patch | Gains
"""What `edit=` takes: edits by the names of units, `ra.patch(cache)` as it is, or gains."""
OnError = Literal["raise", "skip"]
Layout = Literal["native", "hf", "laion", "onnx"]


class Model(AudioTextModel):
    """A loaded model with the verbs of this package as methods.

    >>> import residual_audio as ra
    >>> ra.load_model("nano")
    Model nano: htsat, 184 heads in 12 blocks, hears 5.0 s at 32000 Hz, 256 dimensions
    """

    @classmethod
    def of(cls, model: AudioTextModel) -> Model:
        """The same model, sharing its weights, with the verbs."""
        return model if isinstance(model, Model) else cls.twin(model)

    # Name, digest and encoder are those of the edited model inside `with model.edited(…)`, in that
    # thread alone: whatever is asked of the model there, by whichever function, is edited.

    @property
    def name(self) -> str:
        return str(_now(self).__dict__["name"])

    @name.setter
    def name(self, value: str) -> None:
        self.__dict__["name"] = value

    @property
    def sha256(self) -> str:
        """Of the weights and of every edit on top; empty where an edit cannot be told apart."""
        return str(_now(self).__dict__["sha256"])

    @sha256.setter
    def sha256(self, value: str) -> None:
        self.__dict__["sha256"] = value

    @property
    def encoder(self) -> Encoder:
        return cast(Encoder, _now(self)._modules["encoder"])

    @encoder.setter
    def encoder(self, value: Encoder) -> None:
        self._modules["encoder"] = value

    def units(self, pattern: UnitLike = "head") -> tuple[str, ...]:
        """Names of units: a level (`head`, `attention`, `mlp`, `stage`) or a pattern (`s3.*.h0`).

        >>> import residual_audio as ra
        >>> ra.load_model("nano").units("s3.*.attention")
        ('s3.b0.attention', 's3.b1.attention')
        """
        return tuple(unit.name for unit in parse_units(pattern, self.encoder.sites))

    def embed_audio(
        self,
        items: Sequence[AudioInput],
        *,
        sample_rate: int | None = None,
        edit: EditLike | None = None,
        long: LongPolicy = "first",
        on_error: OnError = "raise",
        batch_size: int = 8,
        n_threads: int = 2,
        progress: Progress = SILENT,
    ) -> npt.NDArray[np.float32]:
        """Files, or waveforms of `sample_rate` Hz → unit vectors [n, d], always the same ones.

        A clip that cannot be heard is an error that names it; with `on_error="skip"` its row is
        NaN, and a warning says why. `edit` changes units for this call alone.

        >>> import numpy as np, residual_audio as ra
        >>> noise = np.random.default_rng(0).normal(size=16000) / 10
        >>> ra.load_model("nano").embed_audio([noise], sample_rate=16000).shape
        (1, 256)
        """
        _check_list(items, "embed_audio")
        model = self._as_asked(edit)
        cut, hearing = cut_inputs(model, long, sample_rate), Hearing(long, batch_size, n_threads)
        strict = _strict(on_error)
        found = embed_items(model, items, cut, hearing, strict=strict, progress=progress)
        return found.vectors if strict else _with_gaps(found, items)

    def run(
        self,
        items: Sequence[AudioInput],
        keep: UnitLike | Iterable[UnitLike] = (),
        *,
        sample_rate: int | None = None,
        edit: EditLike | None = None,
        long: LongPolicy = "first",
        on_error: OnError = "raise",
        batch_size: int = 8,
        progress: Progress = SILENT,
    ) -> Cache:
        """Files or waveforms through the model, and what `keep` names of what happens inside.

        Units (`s2.b5.h11`, `s3.*.attention`, `head`) and points (`maps`, `stream`, `end`, `scale`,
        `tokens`, `contributions`; at one place `s2.b5.maps`). Nothing else is kept.

        >>> import numpy as np, residual_audio as ra
        >>> noise = np.random.default_rng(0).normal(size=32000) / 10
        >>> cache = ra.load_model("nano").run([noise], keep="s3.b1.h0", sample_rate=32000)
        >>> cache["s3.b1.h0"].shape, cache.embedding.shape
        ((1, 16, 12), (1, 256))
        """
        _check_list(items, "run")
        model = self._as_asked(edit)
        cut, hearing = cut_inputs(model, long, sample_rate), Hearing(long, batch_size)
        strict = _strict(on_error)
        return keep_run(model, items, keep, cut, hearing, strict=strict, progress=progress)

    def with_edit(self, edit: EditLike) -> Model:
        """The same weights with an edit in every pass, usable wherever a model is.

        Its name and digest carry the edit, so that nothing kept of one model is taken for another.

        >>> import residual_audio as ra
        >>> ra.load_model("nano").with_edit({"s3.b1.h0": ra.zero()}).name
        'nano + zero(s3.b1.h0)'
        """
        now = self._fixed()
        change = now._change(edit)
        if change.on_output and not now.head.reads_latent:
            raise ModelError(
                f"the joint embedding of '{now.name}' is no function of the pooled latent: a "
                "change of it (output, direct gains) would reach nothing"
            )
        edited = Model.twin(now, EditedEncoder(now.encoder, change))
        edited.name = f"{now.name} + {change.label}"
        both = f"{now.sha256} {change.digest}"
        known = now.sha256 and change.digest
        edited.sha256 = hashlib.sha256(both.encode()).hexdigest() if known else ""
        return edited

    @contextmanager
    def edited(self, edit: EditLike) -> Iterator[Model]:
        """Inside the block this model is edited, for this thread alone; afterwards as before.

        >>> import numpy as np, residual_audio as ra
        >>> model, noise = ra.load_model("nano"), np.random.default_rng(0).normal(size=32000)
        >>> with model.edited({"s3": ra.scale(0.0)}):
        ...     inside = model.embed_audio([noise], sample_rate=32000)
        >>> bool((inside == model.embed_audio([noise], sample_rate=32000)).all())
        False
        """
        edited = self.with_edit(edit)
        token = _EDITED.set({**_EDITED.get(), id(self): edited})
        try:
            yield edited
        finally:
            _EDITED.reset(token)

    def save(self, out: str | Path, to: Layout = "native") -> Path:
        """Write a checkpoint: `native`, `hf` and `onnx` are folders, `laion` is a .pt file."""
        write_model(self, Path(out), to)
        return Path(out)

    def __repr__(self) -> str:
        sites, spec = self.encoder.sites, self.spec
        heads, blocks = sum(site.n_heads for site in sites), len(sites) // 2
        return (
            f"Model {self.name}: {self.encoder.kind}, {heads} heads in {blocks} blocks, hears "
            f"{spec.duration_s:.1f} s at {spec.sample_rate_hz} Hz, {self.joint_dim} dimensions"
        )

    def _as_asked(self, edit: EditLike | None) -> Model:
        return self._fixed() if edit is None else self.with_edit(edit)

    def _fixed(self) -> Model:
        """The model as it is here and now, which no `with` changes any more."""
        return Model.twin(self)

    def _change(self, edit: EditLike) -> PassChange:
        if not isinstance(edit, Gains):
            return site_change(edit, self.encoder.sites)
        latent = int(self.head.config.get("d_in", 0))
        inner = self.encoder
        edited = isinstance(inner, EditedEncoder)
        # the digest of an edited model is not the one that gains remember of its weights
        check_fits(edit, inner.sites, latent, None if edited else self.sha256)
        return gains_change(edit, inner)


_EDITED: ContextVar[Mapping[int, Model]] = ContextVar("edited", default={})  # noqa: B039
"""Models that are edited in this thread, by identity; never changed, only replaced."""


def _now(model: Model) -> Model:
    return _EDITED.get().get(id(model), model)


def load_model(name: str, device: str | torch.device = "auto") -> Model:
    """A model by name, proved on a dummy clip; see `residual-audio models`.

    >>> import residual_audio as ra
    >>> model = ra.load_model("nano")
    >>> model.embed_text(["a dog barks", "rain"]).shape
    (2, 256)
    """
    return Model.of(registry.load_model(name, device))


def _check_list(items: Sequence[AudioInput], verb: str) -> None:
    if isinstance(items, str | Path | np.ndarray):
        raise InputError(f"{verb} takes a list of files or waveforms, not a single one")


def _strict(on_error: OnError) -> bool:
    if on_error not in ("raise", "skip"):
        raise InputError(f"on_error is 'raise' or 'skip', not '{on_error}'")
    return on_error == "raise"


def _with_gaps(found: AudioVectors, items: Sequence[AudioInput]) -> npt.NDArray[np.float32]:
    """One row an item, NaN for those that could not be heard."""
    if found.skipped:
        why = "; ".join(f"{name_of(items[i], i)}: {why}" for i, why in found.skipped.items())
        warnings.warn(f"{len(found.skipped)} clips could not be heard: {why}", stacklevel=3)
    vectors = np.full((len(items), found.vectors.shape[1]), np.nan, np.float32)
    vectors[list(found.places)] = found.vectors
    return vectors
