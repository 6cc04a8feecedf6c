"""Any of our models, with or without gains, in MTEB's tasks (MAEB among them).

    import mteb, residual_audio.mteb as doors

    model = doors.encoder("hf:laion/clap-htsat-unfused", gains="gains.safetensors")
    mteb.evaluate(model, mteb.get_tasks(["ESC50_Zeroshot"]))

MTEB writes its own result files. Sound is decoded and resampled here, so that neither torchaudio
nor torchcodec is needed.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import soundfile

from residual_audio.audio.decode import downmix, load_audio, resample
from residual_audio.errors import AudioError, InputError, MissingExtraError
from residual_audio.models.frontends import build_front_end
from residual_audio.models.model_names import base_of
from residual_audio.models.text import TransformersText
from residual_audio.results import slug
from residual_audio.surface.given import GainsLike, ModelLike, given_gains, given_model
from residual_audio.surface.model import Model

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

Vectors = npt.NDArray[np.float32]
Preset = Literal["leaderboard", "own"]
CLIPS_AT_ONCE = 64
"""Decoded and held in memory."""


@dataclass(frozen=True)
class FrontEndPreset:
    """What differs between a checkpoint's own front-end and the one that scores are posted with."""

    quantise: bool
    """Samples go through int16 and back."""
    max_tokens: int | None
    """Texts are cut there; None: where the checkpoint says."""


PRESETS: Mapping[str, FrontEndPreset] = {
    "leaderboard": FrontEndPreset(quantise=True, max_tokens=77),
    "own": FrontEndPreset(quantise=False, max_tokens=None),
}


class MtebEncoder:
    """A model that speaks MTEB's encoder protocol."""

    def __init__(self, model: Model, preset: Preset = "own", batch_size: int = 8) -> None:
        if preset not in PRESETS:
            raise InputError(f"no preset '{preset}': there are {', '.join(PRESETS)}")
        self.model = with_preset(model, PRESETS[preset])
        self.preset = preset
        self.batch_size = batch_size

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """What MTEB files results under: the name of the base, or of what was made of it."""
        try:
            from mteb.models.model_meta import ModelMeta, ScoringFunction
        except ImportError as error:
            raise MissingExtraError("mteb", "mteb", "Running MTEB's tasks") from error

        model, base = self.model, base_of(self.model.name)
        edited = " + " in model.name
        own = base if "/" in base and not edited else f"residual-audio/{slug(base)}"
        name = f"{own}-edited-{model.sha256[:8]}" if edited else own
        about = {
            "loader": None,
            "name": name,
            "revision": model.sha256[:40] or "no_revision_available",
            "languages": ["eng-Latn"],
            "n_parameters": sum(p.numel() for p in model.parameters()),
            "embed_dim": model.joint_dim,
            "framework": ["PyTorch"],
            "similarity_fn_name": ScoringFunction.COSINE,
            "use_instructions": False,
            "modalities": ["audio"] if model.text is None else ["audio", "text"],
            "adapted_from": base if edited and "/" in base else None,
            "experiment_kwargs": {"front_end": self.preset},
        }
        found: ModelMeta = ModelMeta.create_empty(overwrites=about)
        return found

    def encode(self, inputs: Any, **about: Any) -> Vectors:
        """Unit vectors of the texts or sounds of a data loader; of both together, their sum."""
        dataset = inputs.dataset
        parts = []
        if "text" in dataset.features:
            parts.append(self.model.embed_text([str(text) for text in dataset["text"]]))
        if "audio" in dataset.features:
            parts.append(self._sounds(dataset))
        if not parts:
            names = ", ".join(dataset.features)
            raise InputError(f"no column 'text' or 'audio' to embed; there are: {names}")
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def similarity(self, one: object, other: object) -> Vectors:
        """Cosines, [n, m]."""
        return _unit(one) @ _unit(other).T

    def similarity_pairwise(self, one: object, other: object) -> Vectors:
        """Cosines of pairs, [n]."""
        found: Vectors = (_unit(one) * _unit(other)).sum(-1)
        return found

    def _sounds(self, dataset: object) -> Vectors:
        rate, found, held = self.model.sample_rate_hz, [], []
        for wave in _waves(dataset, rate):
            held.append(wave)
            if len(held) == CLIPS_AT_ONCE:
                found.append(self._embed(held, rate))
                held = []
        if held:
            found.append(self._embed(held, rate))
        return np.concatenate(found) if found else np.zeros((0, self.model.joint_dim), np.float32)

    def _embed(self, waves: list[Any], rate: int) -> Vectors:
        return self.model.embed_audio(waves, sample_rate=rate, batch_size=self.batch_size)


def encoder(
    model: ModelLike,
    gains: GainsLike | None = None,
    *,
    preset: Preset = "own",
    device: str = "auto",
    batch_size: int = 8,
) -> MtebEncoder:
    """A model by name (or as it is), with gains where there are any, for `mteb.evaluate`.

    `preset="leaderboard"` hears and reads as MTEB's own CLAP wrapper does: samples rounded to
    int16, texts cut at 77 tokens. What is left is the resampler (soxr here, torchaudio there).
    """
    given = given_model(model, device)
    if gains is not None:
        given = given.with_edit(given_gains(gains))
    return MtebEncoder(given, preset, batch_size)


def with_preset(model: Model, preset: FrontEndPreset) -> Model:
    """The same weights behind another front-end; the model that was given stays as it is."""
    twin = Model.twin(model)
    if preset.quantise and not model.spec.quantise:
        front_end = build_front_end(replace(model.spec, quantise=True))
        front_end.load_state_dict(model.front_end.state_dict())
        twin._modules["front_end"] = front_end.to(model.device)
    text = model.text
    if preset.max_tokens is not None and isinstance(text, TransformersText):
        shorter = copy.copy(text)  # shares the weights
        length = min(preset.max_tokens, text.tokenizer_spec.max_length)
        shorter.tokenizer_spec = replace(text.tokenizer_spec, max_length=length)
        twin._modules["text"] = shorter
    return twin


def _waves(dataset: Any, rate: int) -> Iterator[npt.NDArray[Any]]:
    """Mono samples of every row, at this rate."""
    from datasets import Audio

    if isinstance(dataset.features["audio"], Audio):
        dataset = dataset.cast_column("audio", Audio(decode=False))
    for place, row in enumerate(dataset.select_columns("audio")):
        yield _samples(row["audio"], place, rate)


def _samples(value: Mapping[str, Any], place: int, rate: int) -> npt.NDArray[Any]:
    """Of an array with its rate, of the bytes of a file, or of its path."""
    if value.get("array") is not None:
        block = np.asarray(value["array"], np.float32)
        # channels come first there
        mono = block if block.ndim == 1 else downmix(block.T)
        return resample(mono, int(value["sampling_rate"]), rate)
    if value.get("bytes") is None:
        return load_audio(value["path"], rate)
    try:
        block, was = soundfile.read(io.BytesIO(value["bytes"]), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise AudioError(f"sound {place} of the task cannot be decoded: {error}") from error
    return resample(downmix(block), int(was), rate)


def _unit(vectors: object) -> Vectors:
    array = np.atleast_2d(np.asarray(vectors, np.float32))
    return array / np.maximum(np.linalg.norm(array, axis=-1, keepdims=True), 1e-12)
