"""The format on disk: shards, clip index, manifest; verified, read lazily. It knows no model."""

from residual_audio.store.reader import Store, open_store

__all__ = ["Store", "open_store"]
