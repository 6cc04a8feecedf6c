"""What an extraction did, in words and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from residual_audio.audio.oddities import apart_from_padding
from residual_audio.extraction.extraction import Extraction
from residual_audio.store.by_clip import n_recordings
from residual_audio.types import HeardBefore


class ExtractionSummary(TypedDict):
    """What `extract` prints."""

    out: str
    model: str
    dataset: str
    capture: list[str]
    n_ok: int
    """Rows: clips, or windows of them."""
    n_recordings: int
    """Clips that the rows are of."""
    n_skipped: int
    skipped: dict[str, int]
    """Reason, without its numbers → clips."""
    skipped_clips: dict[str, str]
    """Clip id → reason."""
    remarks: dict[str, str]
    """Clip id → what is odd about its sound, though it was used."""
    notes: list[str]
    """What is so of many clips."""
    heard_before: HeardBefore | None
    partial: dict[str, int] | None
    n_shards: int
    n_shards_made: int
    n_shards_failed: int
    """Shards whose clips are skipped until the same command makes them."""
    bytes_per_clip: int


def summarise(found: Extraction, out: Path) -> ExtractionSummary:
    """Everything a person or a program wants to know of a finished extraction."""
    store = found.store
    odd, padding = apart_from_padding(store.remarks)
    return {
        "out": str(out),
        "model": store.model_info.name,
        "dataset": store.dataset_info.name,
        "capture": list(store.kinds),
        "n_ok": found.n_ok,
        "n_recordings": n_recordings(store),
        "n_skipped": len(found.skipped),
        "skipped": group_reasons(found.reasons),
        "skipped_clips": dict(found.skipped),
        "remarks": odd,
        "notes": padding,
        "heard_before": store.heard_before,
        "partial": asdict(store.partial) if store.partial else None,
        "n_shards": store.size.n_shards,
        "n_shards_made": found.n_shards_made,
        "n_shards_failed": len(store.manifest.get("failed_shards", ())),
        "bytes_per_clip": round(store.size.shard_bytes / max(1, found.n_ok)),
    }


def group_reasons(reasons: Mapping[str, int]) -> dict[str, int]:
    """Reasons that differ only in their numbers, counted together; the most frequent first."""
    groups: dict[str, int] = {}
    for reason, n in reasons.items():
        key = re.sub(r"\d+(?:[.,]\d+)*", "…", reason)
        groups[key] = groups.get(key, 0) + n
    return dict(sorted(groups.items(), key=lambda group: -group[1]))
