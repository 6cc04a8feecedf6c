"""The bundled synthetic sounds as a reference run, where nobody has one: made once and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

from residual_audio.data.registry import load_dataset
from residual_audio.data.remembered import RunSource, remember_source
from residual_audio.errors import InputError, ResidualAudioError, StoreError
from residual_audio.extraction.extraction import extract
from residual_audio.files import cache_dir
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.registry import load_model
from residual_audio.progress import SILENT, Progress
from residual_audio.store import open_store

SYNTHETIC = "synthetic"
"""What is written in the place of a run; a folder of that name is `./synthetic`."""
N_CLIPS = 246
"""Six of each class."""
_ONE_AT_A_TIME = Lock()


def with_synthetic(
    runs: Sequence[str],
    about: Mapping[str, object],
    model: AudioTextModel | None = None,
    progress: Progress = SILENT,
) -> tuple[str, ...]:
    """The same runs with `synthetic` as the folder of its run, which is made if it has to be.

    `about` is what the store that is adapted to says of its model.
    """
    return tuple(
        str(_synthetic_run(about, model, progress)) if run == SYNTHETIC else str(run)
        for run in runs
    )


def _synthetic_run(
    about: Mapping[str, object], model: AudioTextModel | None, progress: Progress
) -> Path:
    folder = cache_dir() / "references" / f"{str(about['sha256'])[:16]}-{SYNTHETIC}-{N_CLIPS}"
    with _ONE_AT_A_TIME:  # methods side by side want the same run
        try:
            open_store(folder)
        except StoreError:  # absent, or stopped half-way
            loaded = _loaded(about) if model is None else model
            if loaded.sha256 != about["sha256"]:
                raise InputError(
                    f"'{loaded.name}' is not the model of this run ({about['name']}): give that "
                    "one, it has to hear the synthetic sounds"
                ) from None
            progress.note(
                f"{N_CLIPS} synthetic sounds go through {about['name']} once, kept in {folder}"
            )
            sounds = load_dataset(SYNTHETIC, n_clips=N_CLIPS)
            extract(loaded, sounds, folder, capture=("heads", "direct"), progress=progress)
            remember_source(folder, RunSource(SYNTHETIC, None, {"n_clips": N_CLIPS}))
    heard = open_store(folder).heard_before
    if heard is not None and heard["note"]:
        progress.note(f"synthetic sounds as references: {heard['note']}")
    return folder


def _loaded(about: Mapping[str, object]) -> AudioTextModel:
    try:
        return load_model(str(about["name"]), "cpu")
    except ResidualAudioError as error:
        raise InputError(
            f"the synthetic sounds have to be heard by '{about['name']}', which cannot be opened "
            f"by its name ({error}): give --model"
        ) from error
