"""Texts embedded once with the model: class prompts, and a dictionary to name directions with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol

import numpy as np

from residual_audio.capture.recorder import Arrays
from residual_audio.errors import InputError, ModelError

N_CAPTIONS = 1000
"""Captions of the data set that join the dictionary; a seeded sample where there are more."""


class EmbedsText(Protocol):
    text: Any

    def embed_text(self, texts: Sequence[str]) -> np.ndarray: ...


@dataclass(frozen=True)
class Texts:
    """The strings that go with the rows of the embedded texts."""

    template: str
    classes: tuple[str, ...]
    prompts: tuple[str, ...]
    dictionary: tuple[str, ...]
    sources: tuple[str, ...]
    """Where each dictionary entry is from: `class`, `caption` or `built-in`."""

    def to_dict(self) -> dict[str, object]:
        return {name: _listed(value) for name, value in self.__dict__.items()}


def built_in_dictionary() -> tuple[str, ...]:
    """Short descriptions of sounds, written for this package."""
    text = resources.files("residual_audio.capture").joinpath("dictionary.txt").read_text("utf-8")
    return tuple(line for line in text.splitlines() if line)


def gather_texts(
    classes: Sequence[str],
    template: str,
    captions: Iterable[str] = (),
    seed: int = 0,
    n_captions: int = N_CAPTIONS,
) -> Texts:
    """Class prompts; and the dictionary: prompts, captions of the data set, built-in texts."""
    template = template or "{}"
    if "{}" not in template:
        raise InputError(f"the prompt '{template}' has no {{}} for the class name")
    prompts = tuple(template.replace("{}", name) for name in classes)
    # in order of first mention: the same data set gives the same dictionary everywhere
    distinct = list(dict.fromkeys(caption.strip() for caption in captions if caption.strip()))
    if len(distinct) > n_captions:
        chosen = np.random.default_rng([seed, 4]).permutation(len(distinct))[:n_captions]
        distinct = [distinct[i] for i in sorted(chosen)]
    entries: dict[str, str] = {}
    for source, texts in (
        ("class", prompts),
        ("caption", distinct),
        ("built-in", built_in_dictionary()),
    ):
        for text in texts:
            entries.setdefault(text, source)
    return Texts(template, tuple(classes), prompts, tuple(entries), tuple(entries.values()))


def embed_texts(model: EmbedsText, texts: Texts) -> tuple[Arrays, str | None]:
    """`text/classes` [class, d] and `text/dictionary` [entry, d], unit length.

    Nothing, and the reason, for a model without a text side or whose tokenizer is not here: heads
    can be captured all the same.
    """
    if model.text is None:
        return {}, "the model has no text side"
    rows = {text: i for i, text in enumerate(texts.dictionary)}
    try:
        dictionary = np.asarray(model.embed_text(list(texts.dictionary)), np.float32)
    except ModelError as error:
        return {}, str(error)
    classes = dictionary[[rows[prompt] for prompt in texts.prompts]]
    return {"text/classes": classes, "text/dictionary": dictionary}, None


def _listed(value: object) -> Any:
    return list(value) if isinstance(value, tuple) else value
