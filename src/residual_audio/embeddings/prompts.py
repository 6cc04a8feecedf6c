"""Prompts: named templates and ensembles, and what a class becomes in the text space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.embeddings.embedder import JointEmbedder
from residual_audio.errors import InputError

Array = npt.NDArray[Any]

TEMPLATES: dict[str, tuple[str, ...]] = {
    "plain": ("{}",),
    "sound": ("This is a sound of {}.",),
    "recording": ("A recording of {}.",),
    "hear": ("I can hear {}.",),
    "instrument": ("The sound of {} playing.",),
    "ensemble": (
        "{}",
        "This is a sound of {}.",
        "The sound of {}.",
        "A recording of {}.",
        "An audio clip of {}.",
        "I can hear {}.",
        "Somewhere there is {}.",
        "One can clearly hear {}.",
    ),
    "instruments": (
        "The sound of {}.",
        "The sound of {} playing.",
        "A recording of {}.",
        "A single note played on {}.",
        "Music played on {}.",
        "Somebody plays {}.",
    ),
}
"""By name; several templates make an ensemble. `dataset` stands for the data set's own template."""


@dataclass(frozen=True)
class Prompts:
    """Templates with a {} for the class, and how they were named."""

    name: str
    templates: tuple[str, ...]

    def fill(self, label: str) -> list[str]:
        """One text a template."""
        return [template.replace("{}", label) for template in self.templates]


def find_prompts(given: Sequence[str] | str, dataset_template: str | None = None) -> Prompts:
    """Names and templates → one set of prompts; several of them are joined to one ensemble."""
    asked = [given] if isinstance(given, str) else list(given)
    if not asked:
        raise InputError("no prompt was given: name one or write a template with {}")
    templates: list[str] = []
    for one in asked:
        if one == "dataset":
            templates.append(dataset_template or "{}")
        elif one in TEMPLATES:
            templates += TEMPLATES[one]
        elif "{}" in one:
            templates.append(one)
        else:
            raise InputError(
                f"'{one}' is neither a prompt by name (dataset, {', '.join(TEMPLATES)}) nor a "
                "template with {}"
            )
    return Prompts("+".join(asked), tuple(dict.fromkeys(templates)))


def embed_classes(model: JointEmbedder, classes: Sequence[str], prompts: Prompts) -> Array:
    """Unit vectors [class, d]: the mean over the templates of each class's unit embeddings."""
    filled = [text for label in classes for text in prompts.fill(label)]
    vectors = np.asarray(model.embed_text(filled), dtype=np.float64)
    mean = vectors.reshape(len(classes), len(prompts.templates), -1).mean(1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)
