"""Where clouds come from: a model on a data set, a run's store, or files of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.data.base import Dataset
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.of_dataset import embed_clips
from residual_audio.embeddings.of_texts import embed_texts
from residual_audio.embeddings.prompts import Prompts, embed_classes
from residual_audio.errors import InputError
from residual_audio.geometry.clouds import Clouds, make_clouds
from residual_audio.models.training_data import heard_before
from residual_audio.progress import SILENT, Progress
from residual_audio.store import Store, open_store

Array = npt.NDArray[Any]

AUDIO_NAMES = ("audio", "audio_embeddings", "audio_emb", "a", "embeddings")
TEXT_NAMES = ("text", "text_embeddings", "text_emb", "t")


def clouds_of_model(
    model: JointEmbedder,
    dataset: Dataset,
    prompts: Prompts,
    *,
    split: str = "all",
    embedding: EmbeddingSettings = DEFAULT,
    progress: Progress = SILENT,
) -> Clouds:
    """Text is, in this order, the captions of pairs, the captions of clips, or class prompts; of a
    model without a text side, and where nothing is said of clips, there is audio alone."""
    embedded = embed_clips(model, dataset, embedding, progress=progress)
    by_id = {clip.id: clip for clip in dataset.clips}
    said = _said(dataset, embedded.ids)
    text: Array | None = None
    pairs = np.empty((0, 2), dtype=np.int64)
    if model.text is not None and said:
        text = embed_texts(model, [words for _, words in said], cache=embedding.cache)
        pairs = np.array([[i, j] for j, (i, _) in enumerate(said)])
    elif model.text is not None and len(dataset.classes) > 1:
        text = embed_classes(model, dataset.classes, prompts)
        pairs = _class_pairs([by_id[name].label for name in embedded.ids], dataset.classes)
    record = provenance.collect(
        model=model,
        dataset=dataset,
        long=embedding.long,
        prompts=None if said else prompts.templates,
        heard_before=heard_before(model.trained_on, dataset),
        skipped=dict(embedded.skipped),
        remarks=dict(embedded.remarks),
    )
    return make_clouds(
        embedded.vectors, text, pairs=pairs,
        groups=[by_id[name].group or name for name in embedded.ids],
        model=provenance.model_label(model), dataset=dataset.name, split=split, record=record,
    )  # fmt: skip


def _said(dataset: Dataset, ids: Sequence[str]) -> list[tuple[int, str]]:
    """(row of audio, what is said of it): captions of pairs, or of clips where there are none."""
    row = {name: i for i, name in enumerate(ids)}
    if dataset.pairs:
        return [
            (row[clip.id], caption)
            for pair in dataset.pairs
            for clip, caption in zip(pair.clips[:2], pair.captions[:2], strict=True)
            if clip.id in row
        ]
    captions = {clip.id: clip.captions for clip in dataset.clips}
    return [
        (row[name], caption.strip())
        for name in ids
        for caption in captions[name]
        if caption.strip()
    ]


def _class_pairs(labels: Sequence[str | None], classes: Sequence[str]) -> Array:
    """[clip, class] of every clip whose label is one of the classes."""
    number = {label: j for j, label in enumerate(classes)}
    found = [[i, number[label]] for i, label in enumerate(labels) if label in number]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def clouds_of_run(path: Path) -> Clouds:
    """From the store of a run, without a model: clips against their captions or class prompts."""
    store = open_store(path)
    clips = store.clips
    text, pairs = _text_side(store)
    model, data = store.model_info, store.dataset_info
    return make_clouds(
        store.embedding(), text, pairs=pairs,
        groups=[group or name for group, name in zip(clips["group"], clips["id"], strict=True)],
        model=provenance.without_machine_paths(model.name), dataset=data.name,
        record={
            "run": Path(path).name, "model": asdict(model), "dataset": asdict(data),
            "heard_before": store.heard_before, "skipped": store.skipped, "remarks": store.remarks,
        },
    )  # fmt: skip


def _text_side(store: Store) -> tuple[Array | None, Array]:
    """Text vectors [m, d] and the (audio, text) pairs; none for an audio-only model."""
    nothing = np.empty((0, 2), dtype=np.int64)
    if not store.has_text:
        return None, nothing
    texts, vectors = store.texts()
    place = {one: j for j, one in enumerate(texts)}
    said = [
        (i, place[caption.strip()])
        for i, captions in enumerate(store.clips["captions"])
        for caption in (captions if captions is not None else ())
        if caption.strip() in place
    ]
    if said and vectors is not None:
        used = sorted({j for _, j in said})
        renumber = {j: k for k, j in enumerate(used)}
        return vectors[used], np.array([[i, renumber[j]] for i, j in said])
    classes = store.class_embeddings()
    if classes is None:
        return None, nothing
    return classes, _class_pairs(list(store.clips["label"]), store.classes)


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
