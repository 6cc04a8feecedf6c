"""Clips to learn from: their log-mels in memory, their labels, their own texts, their teacher."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from residual_audio.audio import specs
from residual_audio.audio.frontend import FrontEndSpec, LogMel
from residual_audio.audio.windows import fit_windows
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.models.training_data import TrainingData
from residual_audio.passes.loop import Hearing, Windows, hear
from residual_audio.progress import SILENT, Progress
from residual_audio.training.corpus import texts_by_clip
from residual_audio.training.recipe import AudioRecipe, Distillation
from residual_audio.training.training_state import load_tensors, save_tensors
from residual_audio.types import Clip


@dataclass
class Clips:
    """Everything a batch is made of, row by row."""

    features: Tensor
    """Log-mel, float16: [clip, frame, mel]."""
    ids: list[str]
    labels: Tensor
    """Row of `classes`, −1 for clips that only have captions."""
    sources: Tensor
    """Which data set of the recipe a clip is from."""
    texts: list[list[str]]
    groups: list[str]
    classes: tuple[str, ...]
    class_sources: Tensor
    """[class, source] True where a data set has the class."""
    held_out: Tensor
    """True for the clips kept for validation."""
    teacher: dict[str, Tensor] = field(default_factory=dict)
    """`known` [clip], `embedding` [clip, d] and `logits` [clip, k] of the other audio model."""
    fingerprints: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


def front_end_spec(recipe: AudioRecipe) -> FrontEndSpec:
    """The named front-end with the recipe's own settings."""
    name = recipe.front_end
    found = getattr(specs, name.upper().replace("-", "_"), None)
    if not isinstance(found, FrontEndSpec):
        known = [key.lower() for key, v in vars(specs).items() if isinstance(v, FrontEndSpec)]
        raise InputError(f"no front-end '{name}'; there are: {', '.join(known)}")
    return FrontEndSpec.from_dict(found.to_dict() | recipe.front_end_options)


def open_datasets(recipe: AudioRecipe, root: Path) -> list[Dataset]:
    found = []
    for part in recipe.data:
        place = None if part.root is None else root / part.root
        dataset = load_dataset(part.dataset, place, **part.options)
        found.append(dataset.select(folds=part.folds) if part.folds else dataset)
    if not found:
        raise InputError("the recipe names no data: give at least one [[audio.data]]")
    return found


def trained_on(recipe: AudioRecipe) -> tuple[TrainingData, ...]:
    """What a model of this recipe has heard, for its config: evaluations compare with it."""
    found = []
    for part in recipe.data:
        folds = tuple(str(fold) for fold in part.folds)
        if part.dataset == "synthetic":
            kind, seed = part.options.get("kind", "classes"), part.options.get("seed", 0)
            found.append(TrainingData(part.dataset, recipe=f"kind={kind} seed={seed} "))
        elif part.dataset == "esc50":
            # its files carry their fold: they are known again in any folder
            first = f"[{''.join(folds)}]" if folds else r"\d"
            found.append(TrainingData(part.dataset, folds, rf"{first}-\d+-[A-Z]-\d+"))
        else:
            found.append(TrainingData(part.dataset, folds))
    return tuple(found)


def class_names(datasets: Sequence[Dataset]) -> tuple[str, ...]:
    """Labels of all data sets; the same words are the same class."""
    return tuple(dict.fromkeys(label for dataset in datasets for label in dataset.classes))


def load_clips(
    recipe: AudioRecipe, root: Path, cache: Path, seed: int, progress: Progress = SILENT
) -> Clips:
    """Decode (or make) every clip once, or read its log-mel from the cache."""
    spec = front_end_spec(recipe)
    datasets = open_datasets(recipe, root)
    classes = class_names(datasets)
    rows: list[tuple[Clip, int, list[str]]] = []
    parts: list[Tensor] = []
    for source, (part, dataset) in enumerate(zip(recipe.data, datasets, strict=True)):
        own = texts_by_clip(root, part.texts) if part.texts else {}
        usable = [clip for clip in dataset.clips if clip.id not in dataset.missing]
        for clip in usable:
            texts = [*clip.captions, *own.get(Path(clip.id).stem, [])]
            if clip.label is None and not texts:
                raise InputError(f"'{clip.id}' of {dataset.name} has neither a label nor a text")
            rows.append((clip, source, texts))
        parts.append(features_of(part.dataset, dataset, usable, spec, cache, progress))
    at = {label: i for i, label in enumerate(classes)}
    labels = torch.tensor([-1 if c.label is None else at[c.label] for c, _, _ in rows])
    groups = [f"{source}/{clip.group or clip.id}" for clip, source, _ in rows]
    return Clips(
        features=torch.cat(parts),
        ids=[clip.id for clip, _, _ in rows],
        labels=labels,
        sources=torch.tensor([source for _, source, _ in rows]),
        texts=[texts for _, _, texts in rows],
        groups=groups,
        classes=classes,
        class_sources=torch.tensor([[label in d.classes for d in datasets] for label in classes]),
        held_out=hold_out(groups, recipe.validation, seed),
        teacher={} if recipe.distil is None else load_teacher(recipe.distil, root, rows),
        fingerprints=tuple(dataset.fingerprint() for dataset in datasets),
    )


def features_of(
    name: str,
    dataset: Dataset,
    clips: Sequence[Clip],
    spec: FrontEndSpec,
    cache: Path,
    progress: Progress,
) -> Tensor:
    """Log-mels [clip, frame, mel] of one data set, from the cache where they are there."""
    key = f"{dataset.fingerprint()} {len(clips)} {sorted(spec.to_dict().items())}"
    path = cache / f"features-{hashlib.sha256(key.encode()).hexdigest()[:16]}.safetensors"
    if path.is_file():
        return load_tensors(path)["features"]
    progress.step(f"log-mels of {name}", len(clips))
    front_end = LogMel(spec)
    out = torch.empty(
        len(clips), spec.count_frames(spec.n_samples), spec.n_mels, dtype=torch.float16
    )

    def cut(clip: Clip) -> Windows:
        wave = dataset.read(clip, spec.sample_rate_hz)
        return fit_windows(wave, spec.n_samples, spec.short, "first")

    for waves, places in hear(clips, cut, Hearing(batch_size=1)):
        out[places] = front_end(waves).half()
        progress.advance(len(places))
    if not bool(torch.isfinite(out).all()):
        raise ResidualAudioError(f"{name}: a log-mel is not finite")
    save_tensors(path, {"features": out})
    return out


def hold_out(groups: Sequence[str], share: float, seed: int) -> Tensor:
    """A share of the groups, whole."""
    names = sorted(set(groups))
    order = np.random.default_rng(seed).permutation(len(names))
    chosen = {names[i] for i in order[: round(share * len(names))]}
    return torch.tensor([group in chosen for group in groups])


def load_teacher(
    recipe: Distillation, root: Path, rows: Sequence[tuple[Clip, int, list[str]]]
) -> dict[str, Tensor]:
    """Vectors of the clips the file knows, matched by file stem; embeddings are standardised."""
    path = root / recipe.file
    if not path.is_file():
        raise InputError(f"no teacher file '{recipe.file}' below the data root '{root}'")
    with np.load(path, allow_pickle=False) as file:
        stored: dict[str, Any] = {key: file[key] for key in file.files}
    wanted = [k for k in (recipe.names, recipe.embedding, recipe.logits) if k is not None]
    if absent := [key for key in wanted if key not in stored]:
        raise InputError(f"'{recipe.file}' has no array '{absent[0]}'; it has: {', '.join(stored)}")
    place = {Path(str(name)).stem: i for i, name in enumerate(stored[recipe.names])}
    index = np.array([place.get(Path(c.id).stem, -1) if c.path else -1 for c, _, _ in rows])
    known = index >= 0
    if not known.any():
        raise InputError(f"'{recipe.file}' knows none of the clips of the recipe")
    out = {"known": torch.from_numpy(known)}
    if recipe.embedding is not None:
        values = stored[recipe.embedding][index].astype(np.float32)
        mean, std = values[known].mean(0), values[known].std(0) + 1e-6
        out["embedding"] = torch.from_numpy((values - mean) / std)
    if recipe.logits is not None:
        out["logits"] = torch.from_numpy(stored[recipe.logits][index].astype(np.float32))
    return out
