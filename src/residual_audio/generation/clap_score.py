"""CLAP score: does a generated file sound like its prompt? Mean cosine of text and audio."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio import provenance
from residual_audio.data.audio_files import is_audio
from residual_audio.embeddings.cached import Advance, embed_texts, embed_windows
from residual_audio.errors import AudioError, InputError
from residual_audio.metrics import retrieval, uncertainty
from residual_audio.types import Result, Score

FILE_NAMES = ("file", "file_name", "filename", "path", "audio", "id")
PROMPT_NAMES = ("prompt", "caption", "text", "description")


def read_prompts(source: Path, folder: Path) -> list[tuple[Path, str]]:
    """Files below `folder` with their prompts.

    From CSV or JSONL with a column for the file (with or without suffix) and one for the prompt,
    from a JSON object file → prompt, or, with the folder itself, from a `.txt` beside each file.
    """
    stated: list[tuple[str, str]]
    if source.is_dir():
        stated = [
            (
                str(text.relative_to(source).with_suffix("")),
                text.read_text(encoding="utf-8").strip(),
            )
            for text in sorted(source.rglob("*.txt"))
        ]
    else:
        stated = _stated(source)
    if not stated:
        raise InputError(f"'{source}' states no prompt")
    by_name: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if is_audio(path.name) and path.is_file():
            name = path.relative_to(folder)
            for key in (str(name), str(name.with_suffix("")), name.name, name.stem):
                by_name.setdefault(key, path)
    missing = [name for name, _ in stated if name not in by_name]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(stated)} prompts of '{source}' have no file in '{folder}', "
            f"the first is '{missing[0]}'"
        )
    return [(by_name[name], prompt) for name, prompt in stated]


def _stated(source: Path) -> list[tuple[str, str]]:
    if not source.is_file():
        raise InputError(f"no file '{source}' with prompts")
    try:
        text = source.read_text(encoding="utf-8-sig")
        if source.suffix == ".json":
            document = json.loads(text)
            if isinstance(document, dict):
                return [(str(name), str(prompt)) for name, prompt in document.items()]
            rows = document
        elif source.suffix == ".jsonl":
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            rows = list(csv.DictReader(line for line in text.splitlines() if line.strip()))
        found = []
        for row in rows:
            file = next((row[n] for n in FILE_NAMES if row.get(n)), None)
            prompt = next((row[n] for n in PROMPT_NAMES if row.get(n)), None)
            if file is None or prompt is None:
                raise InputError(
                    f"a row of '{source}' lacks a file ({', '.join(FILE_NAMES)}) or a prompt "
                    f"({', '.join(PROMPT_NAMES)}): {json.dumps(row, ensure_ascii=False)[:120]}"
                )
            found.append((str(file), str(prompt)))
        return found
    except (ValueError, AttributeError, UnicodeDecodeError) as error:
        raise InputError(f"'{source}' cannot be read as prompts: {error}") from error


def clap_score(
    model: Any,
    items: Sequence[tuple[Path, str]],
    *,
    name: str = "files",
    root: Path | None = None,
    batch_size: int = 8,
    cache: bool = True,
    seed: int = 0,
    n_resamples: int = 1000,
    advance: Advance | None = None,
) -> Result:
    """Cosine of each prompt with its file (mean over its windows), and how the mean compares.

    The cosine of a model has no scale of its own, so the mean over wrong prompts is given as
    chance, and the share of files that prefer their own prompt to a random other one as `pair_auc`.
    """
    files = list(dict.fromkeys(path for path, _ in items))
    embedded = embed_windows(
        model, files, root=root, batch_size=batch_size, cache=cache, advance=advance
    )
    labels = [str(path.relative_to(root)) if root else path.name for path in files]
    rows = {label: np.flatnonzero(np.array(embedded.ids) == label) for label in labels}
    label_of = dict(zip(files, labels, strict=True))
    kept = [(path, prompt) for path, prompt in items if len(rows[label_of[path]])]
    if not kept:
        raise AudioError(f"none of the {len(files)} files could be read")
    audio = np.stack([embedded.vectors[rows[label_of[path]]].mean(0) for path, _ in kept])
    audio /= np.linalg.norm(audio, axis=1, keepdims=True)
    text = embed_texts(model, [prompt for _, prompt in kept], cache=cache)
    similarity = audio.astype(np.float64) @ text.T.astype(np.float64)
    own = np.diagonal(similarity)
    prompts = np.array([prompt for _, prompt in kept])
    other = prompts[:, None] != prompts[None]
    chance = float(similarity[other].mean()) if other.any() else None
    low, high = uncertainty.mean_interval(own, groups=prompts, seed=seed, n_resamples=n_resamples)
    scores = [Score("clap_score", float(own.mean()), low, high, len(own), chance)]
    if other.any():
        with np.errstate(invalid="ignore"):
            better = ((own[:, None] > similarity) + 0.5 * (own[:, None] == similarity)) * other
            preference = better.sum(1) / other.sum(1)
        low, high = uncertainty.mean_interval(
            preference, groups=prompts, seed=seed, n_resamples=n_resamples
        )
        scores.append(Score("pair_auc", float(np.nanmean(preference)), low, high, len(own), 0.5))
        right = [np.flatnonzero(prompts == prompt) for prompt in prompts]
        ranks = retrieval.relevant_ranks(similarity, right)
        hits = retrieval.recall_at_k(ranks, 1)
        low, high = uncertainty.mean_interval(hits, groups=prompts, seed=seed)
        base = retrieval.chance_recall_at_k(len(own), np.array([len(r) for r in right]), 1)
        scores.append(Score("a2t_r1", float(hits.mean()), low, high, len(own), base))
    return Result(
        task="clap-score",
        model=provenance.model_label(model),
        dataset=name,
        split="all",
        scores=tuple(scores),
        per_item={
            "file": [label_of[path] for path, _ in kept],
            "prompt": prompts.tolist(),
            "similarity": own.tolist(),
        },
        details={"n_prompts": len(set(prompts.tolist())), "skipped": dict(embedded.skipped)},
        provenance=provenance.collect(model=model, seed=seed),
    )
