"""Clips that are heard again must be those that the store was made from."""

from __future__ import annotations

from dataclasses import replace

from residual_audio.data.base import Dataset
from residual_audio.data.tiled import Tiling, tiled
from residual_audio.errors import InputError
from residual_audio.models.clap import AudioTextModel
from residual_audio.store import Store
from residual_audio.store.by_clip import recordings_of


def heard_again(store: Store, dataset: Dataset, model: AudioTextModel) -> Dataset:
    """The data set whose clips are the rows of the store: windows, where it has windows."""
    if not store.has_windows:
        return dataset
    by_id = {clip.id: clip for clip in dataset.clips}
    names = dict.fromkeys(recordings_of(store.all_clips))
    used = replace(dataset, clips=tuple(by_id[name] for name in names if name in by_id))
    spec = model.spec
    return tiled(used, Tiling.of(spec.sample_rate_hz, spec.n_samples, store.run_info.hop_s))


def check_same_data(store: Store, dataset: Dataset) -> None:
    """Refuse files that were edited or exchanged since, and tables with other labels or captions.

    Sounds made on demand follow from their recipe, which the caller compares.
    """
    listed = isinstance(dataset.clips, tuple)
    if dataset.make is not None and not listed and not store.has_windows:
        return
    by_id = {clip.id: clip for clip in dataset.clips}
    ids = [str(i) for i in store.all_clips["id"]]
    absent = [i for i in ids if i not in by_id]
    if absent:
        raise InputError(
            f"'{absent[0]}' is in the store but not in data set '{dataset.name}': give the data "
            "set that the store was made from"
        )
    if not listed and len(ids) == len(dataset.clips):
        same = dataset.fingerprint()
    else:
        same = replace(dataset, clips=tuple(by_id[i] for i in ids)).fingerprint()
    if same != store.dataset_info.fingerprint:
        raise InputError(
            f"the clips of '{dataset.name}' are not what they were when '{store.folder}' was made: "
            "a file, a label or a caption has changed. Extract again, or bring the data back"
        )
