"""CLAP score: does a generated file sound like its prompt? Mean cosine of text and audio."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.of_folder import embed_windows, file_names
from residual_audio.embeddings.of_texts import embed_texts
from residual_audio.errors import AudioError
from residual_audio.metrics import ranks, uncertainty
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Result, Score

Array = npt.NDArray[Any]
N_RESAMPLES = 1000


def clap_score(
    model: JointEmbedder,
    items: Sequence[tuple[Path, str]],
    *,
    name: str = "files",
    root: Path | None = None,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    embedding: EmbeddingSettings = DEFAULT,
    progress: Progress = SILENT,
) -> Result:
    """Cosine of each prompt with its file (mean over its windows), and how the mean compares.

    The cosine of a model has no scale of its own, so the mean over wrong prompts is given as
    chance, and the share of files that prefer their own prompt to a random other one as `pair_auc`.
    """
    files = list(dict.fromkeys(path for path, _ in items))
    embedded = embed_windows(model, files, embedding, root=root, progress=progress)
    label_of = dict(zip(files, file_names(files, root), strict=True))
    owners = np.array(embedded.ids)
    rows = {path: np.flatnonzero(owners == label) for path, label in label_of.items()}
    kept = [(path, prompt) for path, prompt in items if len(rows[path])]
    if not kept:
        raise AudioError(f"none of the {len(files)} files could be read")
    audio = np.stack([embedded.vectors[rows[path]].mean(0) for path, _ in kept])
    audio /= np.linalg.norm(audio, axis=1, keepdims=True)
    prompts = np.array([prompt for _, prompt in kept])
    text = embed_texts(model, prompts.tolist(), cache=embedding.cache)
    similarity = audio.astype(np.float64) @ text.T.astype(np.float64)
    return Result(
        task="clap-score",
        model=provenance.model_label(model),
        dataset=name,
        split="all",
        scores=score_prompts(similarity, prompts, seed=seed, n_resamples=n_resamples),
        per_item={
            "file": [label_of[path] for path, _ in kept],
            "prompt": prompts.tolist(),
            "similarity": np.diagonal(similarity).tolist(),
        },
        details={"n_prompts": len(set(prompts.tolist())), "skipped": dict(embedded.skipped)},
        provenance=provenance.collect(model=model, seed=seed),
    )


def score_prompts(
    similarity: Array, prompts: Array, *, seed: int = 0, n_resamples: int = N_RESAMPLES
) -> tuple[Score, ...]:
    """Scores of files against prompts [file, prompt], own ones on the diagonal.

    Files of one prompt are resampled together. With a single prompt nothing can be compared.
    """
    own = np.diagonal(similarity)
    n = len(own)
    other = prompts[:, None] != prompts[None]
    chance = float(similarity[other].mean()) if other.any() else None
    low, high = uncertainty.mean_interval(
        own, groups=prompts, seed=seed, n_resamples=n_resamples, shares=False
    )
    mean = Score("clap_score", float(own.mean()), low, high, n, chance)
    if not other.any():
        return (mean,)
    with np.errstate(invalid="ignore"):
        better = ((own[:, None] > similarity) + 0.5 * (own[:, None] == similarity)) * other
        preference = better.sum(1) / other.sum(1)
    low, high = uncertainty.mean_interval(
        preference, groups=prompts, seed=seed, n_resamples=n_resamples
    )
    auc = Score("pair_auc", float(np.nanmean(preference)), low, high, n, 0.5)
    right = [np.flatnonzero(prompts == prompt) for prompt in prompts]
    hits = ranks.recall_at_k(ranks.relevant_ranks(similarity, right), 1)
    low, high = uncertainty.mean_interval(hits, groups=prompts, seed=seed)
    base = ranks.chance_recall_at_k(n, np.array([len(r) for r in right]), 1)
    return mean, auc, Score("a2t_r1", float(hits.mean()), low, high, n, base)
