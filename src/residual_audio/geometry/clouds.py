"""The two clouds that probes look at: audio and text vectors of one model on one data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.embeddings.cached import Embedding, embed_clips, embed_texts, need_text
from residual_audio.embeddings.prompts import Prompts, embed_classes
from residual_audio.errors import DatasetError, InputError
from residual_audio.metrics.geometry import unit_rows

Array = npt.NDArray[Any]

AUDIO_NAMES = ("audio", "audio_embeddings", "audio_emb", "a", "embeddings")
TEXT_NAMES = ("text", "text_embeddings", "text_emb", "t")


@dataclass(frozen=True)
class Clouds:
    """Unit vectors of both sides, and which of them belong together."""

    model: str
    dataset: str
    audio: Array
    """[n, d]"""
    text: Array | None
    """[m, d]; None where only audio is known."""
    pairs: Array
    """[p, 2]: rows of audio and of text that belong together; may be empty."""
    groups: Array
    """[n]: what each audio row comes from."""
    split: str = "all"
    provenance: dict[str, Any] = field(default_factory=dict)

    def part(self, audio_rows: Array, text_rows: Array) -> Clouds:
        """Only these rows, and the pairs among them."""
        text = None if self.text is None else self.text[text_rows]
        to_audio = np.full(len(self.audio), -1)
        to_audio[audio_rows] = np.arange(len(audio_rows))
        to_text = np.full(0 if self.text is None else len(self.text), -1)
        to_text[text_rows] = np.arange(len(text_rows))
        pairs = self.pairs
        if len(pairs):
            pairs = np.stack([to_audio[pairs[:, 0]], to_text[pairs[:, 1]]], axis=1)
            pairs = pairs[(pairs >= 0).all(1)]
        return replace(
            self,
            audio=self.audio[audio_rows],
            text=text,
            pairs=pairs,
            groups=self.groups[audio_rows],
        )


def make_clouds(
    audio: Array,
    text: Array | None,
    *,
    pairs: Array | None = None,
    groups: Sequence[Any] | None = None,
    model: str = "embeddings",
    dataset: str = "files",
    split: str = "all",
    record: dict[str, Any] | None = None,
) -> Clouds:
    """Checked and brought to unit length. Without `pairs`, equal counts pair row by row."""
    audio = unit_rows(audio, "audio")
    if text is not None:
        text = unit_rows(text, "text")
        if text.shape[1] != audio.shape[1]:
            raise InputError(
                f"audio has {audio.shape[1]} dimensions and text {text.shape[1]}: not one space"
            )
    if pairs is None and text is not None and len(text) == len(audio):
        pairs = np.stack([np.arange(len(audio))] * 2, axis=1)
    if pairs is None:
        pairs = np.empty((0, 2), dtype=np.int64)
    named = np.arange(len(audio)) if groups is None else np.asarray(groups)
    return Clouds(model, dataset, audio, text, pairs, named, split, record or {})


def clouds_of_model(
    model: Any,
    dataset: Any,
    prompts: Prompts,
    *,
    split: str = "all",
    **how: Unpack[Embedding],
) -> Clouds:
    """Text is, in this order, the captions of pairs, the captions of clips, or class prompts."""
    need_text(model)
    embedded = embed_clips(model, dataset, **how)
    row = {name: i for i, name in enumerate(embedded.ids)}
    by_id = {clip.id: clip for clip in dataset.clips}
    groups = [by_id[name].group or name for name in embedded.ids]
    if dataset.pairs:
        said = [
            (row[clip.id], caption)
            for pair in dataset.pairs
            for clip, caption in zip(pair.clips[:2], pair.captions[:2], strict=True)
            if clip.id in row
        ]
    else:
        said = [
            (row[name], caption.strip())
            for name in embedded.ids
            for caption in by_id[name].captions
            if caption.strip()
        ]
    if said:
        text = embed_texts(model, [caption for _, caption in said], cache=how.get("cache", True))
        pairs = np.array([[i, j] for j, (i, _) in enumerate(said)])
    elif len(dataset.classes) > 1:
        text = embed_classes(model, dataset.classes, prompts)
        number = {label: j for j, label in enumerate(dataset.classes)}
        labels = [by_id[name].label for name in embedded.ids]
        pairs = np.array(
            [[i, number[label]] for i, label in enumerate(labels) if label in number]
        ).reshape(-1, 2)
    else:
        raise DatasetError(
            f"{dataset.name} has neither captions nor classes: there is no text side"
        )
    record = provenance.collect(
        model=model,
        dataset=dataset,
        long=how.get("long", "first"),
        prompts=None if said else prompts.templates,
    )
    return make_clouds(
        embedded.vectors, text, pairs=pairs, groups=groups, model=provenance.model_label(model),
        dataset=dataset.name, split=split, record=record,
    )  # fmt: skip


def clouds_of_run(path: Path) -> Clouds:
    """From the store of a run, without a model: clips against their captions or class prompts."""
    from residual_audio.store import open_store

    store = open_store(path)
    audio = store.embedding()
    labels = list(store.clips["label"])
    groups = [
        group or name for group, name in zip(store.clips["group"], store.clips["id"], strict=True)
    ]
    text: Array | None = None
    pairs = np.empty((0, 2), dtype=np.int64)
    if store.has_text:
        texts, vectors = store.texts()
        place = {one: j for j, one in enumerate(texts)}
        said = [
            [i, place[caption.strip()]]
            for i, captions in enumerate(store.clips["captions"])
            for caption in (captions if captions is not None else ())
            if caption.strip() in place
        ]
        if said and vectors is not None:
            used = sorted({j for _, j in said})
            text = vectors[used]
            renumber = {j: k for k, j in enumerate(used)}
            pairs = np.array([[i, renumber[j]] for i, j in said])
        elif store.class_embeddings() is not None:
            text = store.class_embeddings()
            number = {label: j for j, label in enumerate(store.classes)}
            pairs = np.array(
                [[i, number[label]] for i, label in enumerate(labels) if label in number]
            ).reshape(-1, 2)
    model = store.manifest.get("model", {})
    data = store.manifest.get("asked", {}).get("dataset", {})
    return make_clouds(
        audio, text, pairs=pairs, groups=groups,
        model=provenance.without_machine_paths(str(model.get("name", Path(path).name))),
        dataset=str(data.get("name", "run")),
        record={"run": Path(path).name, "model": model, "dataset": data},
    )  # fmt: skip


def clouds_of_files(audio: Path, text: Path | None = None) -> Clouds:
    """From `.npz` or `.safetensors` with both sides, or one file a side (`.npy` too)."""
    arrays = read_arrays(audio)
    if text is not None:
        others = read_arrays(text)
        return make_clouds(
            _one(arrays, AUDIO_NAMES, audio), _one(others, TEXT_NAMES, text),
            model=f"{audio.stem}+{text.stem}", record={"files": [audio.name, text.name]},
        )  # fmt: skip
    found = next((arrays[name] for name in TEXT_NAMES if name in arrays), None)
    rest = {name: a for name, a in arrays.items() if name not in TEXT_NAMES}
    return make_clouds(
        _one(rest, AUDIO_NAMES, audio), found, model=audio.stem, record={"files": [audio.name]}
    )


def read_arrays(path: Path) -> dict[str, Array]:
    """Matrices of a file by name; nothing is unpickled."""
    if not path.is_file():
        raise InputError(f"no file '{path}'")
    try:
        if path.suffix == ".npy":
            return {"array": np.load(path, allow_pickle=False)}
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files if archive[name].ndim == 2}
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            return {name: a for name, a in load_file(path).items() if a.ndim == 2}
    except Exception as error:  # each reader has its own errors for a damaged file
        raise InputError(f"'{path}' cannot be read as arrays: {error}") from error
    raise InputError(f"'{path}' is not a .npy, .npz or .safetensors file")


def _one(arrays: dict[str, Array], names: Sequence[str], path: Path) -> Array:
    for name in names:
        if name in arrays:
            return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise InputError(
        f"'{path}' holds {', '.join(sorted(arrays)) or 'no matrix'}: name the matrix "
        f"'{names[0]}' so that it is clear which one is meant"
    )


def thin(clouds: Clouds, n_audio: int, n_text: int, seed: int = 0) -> Clouds:
    """At most this many rows of each side: RankMe and dimension grow with n, so match it first."""
    rng = np.random.default_rng(seed)
    audio_rows = np.sort(rng.permutation(len(clouds.audio))[:n_audio])
    n = 0 if clouds.text is None else len(clouds.text)
    kept = np.isin(clouds.pairs[:, 0], audio_rows) if len(clouds.pairs) else np.empty(0, bool)
    wanted = np.unique(clouds.pairs[kept, 1]) if kept.any() else np.empty(0, np.int64)
    # texts of the clips that stay come first, so that pairs survive
    order = np.concatenate(
        [rng.permutation(wanted), rng.permutation(np.setdiff1d(np.arange(n), wanted))]
    )
    return clouds.part(audio_rows, np.sort(order[:n_text].astype(np.int64)))


def halves(clouds: Clouds, rng: np.random.Generator) -> Clouds:
    """Half of the groups, without replacement; a text goes with its group, or is drawn alone."""
    names = np.unique(clouds.groups)
    chosen = rng.permutation(names)[: max(1, math.ceil(len(names) / 2))]
    audio_rows = np.flatnonzero(np.isin(clouds.groups, chosen))
    n = 0 if clouds.text is None else len(clouds.text)
    owner: list[set[Any]] = [set() for _ in range(n)]
    for i, j in clouds.pairs:
        owner[j].add(clouds.groups[i])
    taken = set(chosen.tolist())
    own = [j for j in range(n) if len(owner[j]) == 1 and next(iter(owner[j])) in taken]
    shared = np.array([j for j in range(n) if len(owner[j]) != 1], dtype=np.int64)
    drawn = rng.permutation(shared)[: math.ceil(len(shared) / 2)]
    return clouds.part(audio_rows, np.sort(np.concatenate([own, drawn]).astype(np.int64)))
