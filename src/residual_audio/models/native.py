"""Our own layout: config.json, model.safetensors and, where there is text, tokenizer files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import ModelError, ResidualAudioError
from residual_audio.files import harmless
from residual_audio.models.allowance import Allowance
from residual_audio.models.checkpoint_files import (
    WEIGHTS,
    check_sums,
    read_model_json,
    write_folder,
)
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Encoder
from residual_audio.models.frontends import build_front_end
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import HEADS, JointHead
from residual_audio.models.rotary import Rotary, RotaryConfig
from residual_audio.models.text import MissingText, TransformersText
from residual_audio.models.text_clip import ClipText
from residual_audio.models.text_small import SmallText
from residual_audio.models.training_data import read_training_data, training_data_record
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.models.weights import (
    below,
    load_strict,
    read_safetensors,
    require_file,
    sha256_of,
)

FORMAT = "residual-audio"
SCHEMA_VERSION = 1

ENCODERS: dict[str, Callable[[dict[str, Any]], Encoder]] = {
    "htsat": lambda config: HTSAT(HTSATConfig.from_dict(config)),
    "vit": lambda config: ViT(ViTConfig.from_dict(config)),
    "rotary": lambda config: Rotary(RotaryConfig(**config)),
}
TEXTS: dict[str, Callable[[dict[str, Any], Path], nn.Module]] = {
    "transformers": TransformersText.from_config,
    "missing": MissingText.from_config,
    "small": SmallText.from_config,
    "clip-text": ClipText.from_config,
}


def is_native(folder: Path) -> bool:
    """True for a folder that `save` wrote."""
    path = folder / "config.json"
    return path.is_file() and read_model_json(path).get("format") == FORMAT


def load(folder: Path, name: str | None = None) -> AudioTextModel:
    """Open a folder in our layout, proved by its digests; no pickle is involved."""
    check_sums(folder)
    config = read_model_json(folder / "config.json")
    if config.get("format") != FORMAT:
        raise ModelError(f"'{folder}' is not a {FORMAT} model folder")
    if config.get("schema_version") != SCHEMA_VERSION:
        raise ModelError(
            f"'{folder}' has schema version {config.get('schema_version')}; "
            f"this release reads {SCHEMA_VERSION}"
        )
    path = require_file(folder / WEIGHTS, "the weights of the model")
    state = {
        key: value.float() if value.is_floating_point() else value
        for key, value in read_safetensors(path).items()
    }
    with Allowance(str(folder), path.stat().st_size):
        try:
            encoder, head, text, front_end = _build(config, folder)
        except ResidualAudioError as error:  # parts do not know which file they are described in
            if str(folder) in str(error):
                raise
            raise ModelError(f"'{folder / 'config.json'}': {error}") from error
    parts = {"encoder": encoder, "head": head, "text": text, "front_end": front_end}
    for part, module in parts.items():
        if module is not None:
            load_strict(module, below(state, f"{part}."), f"the {part} in '{path}'")
    model = AudioTextModel(
        name=name or str(folder),
        family=harmless(str(config["family"])),
        front_end=front_end,
        encoder=encoder,
        head=head,
        text=text,
        logit_scale=float(config["logit_scale"]),
        sha256=sha256_of(path),
    )
    try:
        model.trained_on = read_training_data(config.get("trained_on"))
    except ResidualAudioError as error:
        raise ModelError(f"'{folder / 'config.json'}': {error}") from error
    return model


def _build(
    config: dict[str, Any], folder: Path
) -> tuple[Encoder, JointHead, nn.Module | None, nn.Module]:
    """The parts as the config describes them, without weights."""
    try:
        encoder = ENCODERS[config["encoder"]["kind"]](config["encoder"]["config"])
        head = HEADS[config["head"]["kind"]](**config["head"]["config"])
        text = None
        if config["text"] is not None:
            text = TEXTS[config["text"]["kind"]](config["text"]["config"], folder)
        front_end = build_front_end(FrontEndSpec.from_dict(config["front_end"]))
        float(config["logit_scale"])
    except ResidualAudioError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        said = str(error).partition("\n")[0]  # torch adds the frames of its own program
        raise ModelError(
            f"'{folder / 'config.json'}' does not describe a model: {type(error).__name__} {said}"
        ) from error
    except (MemoryError, OverflowError, ArithmeticError) as error:
        raise ModelError(f"'{folder / 'config.json'}' asks for sizes that no model has") from error
    return encoder, head, text, front_end


def save(model: AudioTextModel, out: Path, extra: dict[str, object] | None = None) -> None:
    """Write a model of any family in our layout."""
    encoder, text = model.encoder, model.text
    if encoder.kind not in ENCODERS:
        raise ModelError(
            f"'{model.name}' is edited in every pass, which no weights hold: save the model it was "
            "made from, or fold gains into it"
        )
    config = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "family": model.family,
        "front_end": model.spec.to_dict(),
        "encoder": {"kind": encoder.kind, "config": encoder.config.to_dict()},
        "head": {"kind": model.head.kind, "config": model.head.config},
        "text": None if text is None else {"kind": text.kind, "config": text.config},
        "logit_scale": model.logit_scale,
        "trained_on": training_data_record(model.trained_on),
        "converted_from": {"name": Path(model.name).name, "sha256": model.sha256},
        **(extra or {}),
    }
    state = {
        f"{part}.{key}": value
        for part, module in (
            ("encoder", encoder),
            ("head", model.head),
            ("text", text),
            ("front_end", model.front_end),
        )
        if module is not None
        for key, value in module.state_dict().items()
    }
    write_folder(out, state, {"config.json": json.dumps(config, indent=2)}, tokenizer_of=text)
