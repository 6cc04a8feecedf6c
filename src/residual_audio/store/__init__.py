"""Captured vectors on disk: shards, clip index, manifest; resumable, verified, read lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from residual_audio.store.reader import Store, open_store

if TYPE_CHECKING:
    from residual_audio.store.extraction import Extraction, extract

__all__ = ["Extraction", "Store", "extract", "open_store"]


def __getattr__(name: str) -> Any:
    # Extraction needs torch; reading a store does not.
    if name in ("extract", "Extraction"):
        from residual_audio.store import extraction

        return getattr(extraction, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
