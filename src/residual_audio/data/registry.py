"""Data sets by name. A module listed here has a `CARD` and a `load(root, **options)`."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from residual_audio.data.base import Card, Dataset
from residual_audio.errors import DatasetError, InputError

# name → module in this package
MODULES: dict[str, str] = {
    "synthetic": "synthetic",
    "esc50": "esc50",
    "orchestra": "orchestra",
    "folder": "folder",
    "manifest": "manifest",
}


def dataset_names() -> tuple[str, ...]:
    return tuple(MODULES)


def dataset_card(name: str) -> Card:
    card = _module(name).CARD
    assert isinstance(card, Card)
    return card


def load_dataset(name: str, root: str | Path | None = None, **options: Any) -> Dataset:
    """Read the metadata of a data set; sound is decoded (or made) clip by clip with `.read`."""
    module = _module(name)
    accepted = [p for p in inspect.signature(module.load).parameters if p != "root"]
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        raise InputError(
            f"{name} has no option '{unknown[0]}'; it has: {', '.join(accepted) or 'none'}"
        )
    if name == "synthetic":
        dataset = module.load(**options)
    else:
        if root is None:
            raise DatasetError(f"{name} needs a folder (root / --root). {module.CARD.download}")
        folder = Path(root).expanduser()
        if not folder.exists():
            raise DatasetError(f"no folder '{root}' for {name}. {module.CARD.download}")
        dataset = module.load(folder, **options)
    assert isinstance(dataset, Dataset)
    return dataset


def _module(name: str) -> ModuleType:
    if name not in MODULES:
        raise DatasetError(f"no data set '{name}'; there are: {', '.join(MODULES)}")
    return import_module(f"residual_audio.data.{MODULES[name]}")
