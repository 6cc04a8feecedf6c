"""Data sets by name. A module listed here has a `CARD` and a `load(root, **options)`."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from residual_audio.data.audio_files import LayoutError
from residual_audio.data.base import Card, Dataset
from residual_audio.errors import DatasetError, InputError

# name → module in this package
MODULES: dict[str, str] = {
    "synthetic": "synthetic",
    "esc50": "esc50",
    "urbansound8k": "urbansound8k",
    "orchestra": "orchestra",
    "folder": "folder",
    "manifest": "manifest_table",
    "tinysol": "tinysol",
    "vocalsound": "vocalsound",
    "irmas": "irmas",
    "nsynth": "nsynth",
    "clotho": "clotho",
    "audiocaps": "audiocaps",
    "compa-order": "compa_order",
    "compa-attribute": "compa_attribute",
    "joined": "joined",
    "hf": "hf_parquet",
    "wds": "webdataset",
}
_NAMED = ("hf", "wds")
"""What stands behind the colon of these is where the data lie, not options."""


def needs_root(name: str) -> bool:
    """Whether a data set lies in a folder that has to be named beside it."""
    return name not in ("synthetic", *_NAMED)


def dataset_names() -> tuple[str, ...]:
    return tuple(MODULES)


def dataset_card(name: str) -> Card:
    card = _module(name).CARD
    assert isinstance(card, Card)
    return card


def load_dataset(name: str, root: str | Path | None = None, **options: Any) -> Dataset:
    """Read the metadata of a data set; sound is decoded (or made) clip by clip with `.read`.

    Options may stand in the name: `synthetic:kind=order,n_clips=200`, `clotho:split=evaluation`.

    >>> sounds = load_dataset("synthetic", n_clips=12)
    >>> len(sounds), sounds.read(sounds.clips[0], 32000).shape
    (12, (160000,))
    """
    name, said = parse_name(name)
    options = {**said, **options}
    module = _module(name)
    accepted = _option_names(module)
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        raise InputError(
            f"{name} has no option '{unknown[0]}'; it has: {', '.join(accepted) or 'none'}"
        )
    if name == "synthetic":
        if root is not None:
            raise DatasetError(
                f"synthetic sounds are made, not read: they take no folder ('{root}'). Your own "
                "sounds are the data set `folder`"
            )
        dataset = module.load(**options)
    elif name == "wds":
        dataset = module.load(None if root is None else Path(root).expanduser(), **options)
    elif name in ("hf", "joined"):  # what it is made from may need no folder
        folder = None if root is None else Path(root).expanduser()
        dataset = module.load(folder, module.OPTIONS(**options))
    else:
        if root is None:
            raise DatasetError(f"{name} needs a folder (root / --root). {module.CARD.download}")
        folder = Path(root).expanduser()
        if not folder.exists():
            raise DatasetError(f"no folder '{root}' for {name}. {module.CARD.download}")
        try:
            dataset = module.load(folder, **options)
        except LayoutError as error:
            raise DatasetError(
                f"{error}. Layout of {name}:\n{module.CARD.layout}\n{module.CARD.download}"
            ) from None
    assert isinstance(dataset, Dataset)
    return dataset


def _option_names(module: ModuleType) -> list[str]:
    """Parameters of its `load`, or fields of its `OPTIONS` where they are many."""
    if "options" in (parameters := inspect.signature(module.load).parameters):
        return [field.name for field in fields(module.OPTIONS)]
    return [name for name in parameters if name != "root"]


def parse_name(text: str) -> tuple[str, dict[str, object]]:
    """`name:option=value,option=value` → name, options (numbers and true/false as such)."""
    name, colon, rest = text.partition(":")
    if name in _NAMED:
        return name, {"source": rest} if rest else {}
    options: dict[str, Any] = {}
    # a comma inside a value (classes=rain,wind) is not followed by a name and "="
    for part in re.split(r",(?=\w+=)", rest) if colon else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"'{part}' in '{text}' is not an option: expected name=value")
        options[key.strip()] = _value(value.strip())
    return name, options


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _module(name: str) -> ModuleType:
    if name not in MODULES:
        raise DatasetError(f"no data set '{name}'; there are: {', '.join(MODULES)}")
    return import_module(f"residual_audio.data.{MODULES[name]}")
