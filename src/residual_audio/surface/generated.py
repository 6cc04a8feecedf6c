"""Generated sound and music: distances, prompts, notes, listeners, and all of it in one table."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict, Unpack

from residual_audio.embeddings.embedder import EmbeddingSettings
from residual_audio.generation.clap_score import clap_score as score_files
from residual_audio.generation.fad import DistanceComparison, compare_sides
from residual_audio.generation.listening_tests import analyse_ratings
from residual_audio.generation.midi import read_folder
from residual_audio.generation.music_report import COLUMNS as COLUMNS
from residual_audio.generation.music_report import MusicReport, run_study
from residual_audio.generation.music_study import read_music_study
from residual_audio.generation.pieces import compare_pieces
from residual_audio.generation.prompted_files import read_prompts
from residual_audio.generation.ratings import Ratings, read_ratings
from residual_audio.generation.sound_side import SoundSide, read_side, write_statistics
from residual_audio.progress import SILENT, Progress
from residual_audio.surface.given import ModelLike, given_model
from residual_audio.types import Result


class HearingOptions(TypedDict, total=False):
    """How files are heard and kept."""

    device: str
    batch_size: int
    cache: bool


def _embedding(options: HearingOptions) -> EmbeddingSettings:
    return EmbeddingSettings(
        batch_size=options.get("batch_size", 8), cache=options.get("cache", True)
    )


def sound_statistics(
    model: ModelLike,
    folder: Path,
    out: Path,
    *,
    progress: Progress = SILENT,
    **options: Unpack[HearingOptions],
) -> SoundSide:
    """Mean and covariance of a folder's embeddings, written for later comparisons with it."""
    loaded = given_model(model, options.get("device", "auto"))
    (side,) = _sides(loaded, [folder], options, progress)
    write_statistics(side, loaded, out)
    return side


def sound_distance(
    model: ModelLike,
    reference: Path,
    evaluated: Path,
    *,
    infinity: bool = True,
    seed: int = 0,
    statistics: Path | None = None,
    progress: Progress = SILENT,
    **options: Unpack[HearingOptions],
) -> DistanceComparison:
    """Fréchet audio distance between two folders (or statistics of one), FAD∞, kernel distance.

    With `statistics`, those of the reference are written there.
    """
    loaded = given_model(model, options.get("device", "auto"))
    sides = _sides(loaded, [reference, evaluated], options, progress)
    if statistics is not None:
        write_statistics(sides[0], loaded, statistics)
    return compare_sides(sides[0], sides[1], loaded, infinity=infinity, seed=seed)


def _sides(
    model: ModelLike, sources: list[Path], options: HearingOptions, progress: Progress
) -> list[SoundSide]:
    how, loaded = _embedding(options), given_model(model)
    return [read_side(one, loaded, embedding=how, progress=progress) for one in sources]


def prompt_scores(
    model: ModelLike,
    folder: Path,
    prompts: Path | None = None,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    **options: Unpack[HearingOptions],
) -> Result:
    """Cosine of every prompt with its generated file, beside that of wrong prompts.

    `prompts` is a table of files and prompts; without it every file has a .txt beside it.
    """
    items = read_prompts(prompts or folder, folder)
    return score_files(
        given_model(model, options.get("device", "auto")),
        items,
        name=folder.name,
        root=folder,
        seed=seed,
        embedding=_embedding(options),
        progress=progress,
    )


class NotesOptions(TypedDict, total=False):
    """How notes are described."""

    smoothing: float
    segment_beats: float
    seed: int
    n_resamples: int


def compare_notes(reference: Path, generated: Path, **options: Unpack[NotesOptions]) -> Result:
    """Pitch, rhythm, tonality and structure of one folder of MIDI files against another."""
    return compare_pieces(read_folder(reference), read_folder(generated), **options)


class ListeningOptions(TypedDict, total=False):
    """How a listening test is read."""

    reference: str | None
    """Stimulus that is the hidden reference."""
    anchors: list[str] | None
    screen: bool
    """Leave out listeners by ITU-R BS.1534-3."""
    seed: int
    n_resamples: int


def listening_test(
    file: Path, scale: tuple[float, float] | None = None, **options: Unpack[ListeningOptions]
) -> tuple[Result, Ratings]:
    """What listeners said of each system, with tests and agreement, and the ratings used."""
    return analyse_ratings(read_ratings(file, scale), name=file.stem, **options)


def music_report(
    study: Path,
    model: ModelLike | None = None,
    *,
    scale: tuple[float, float] | None = None,
    reference: str | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
    **options: Unpack[HearingOptions],
) -> MusicReport:
    """Every measure that a study file has material for, of the same systems in one table.

    The model is loaded only where there is sound to hear.
    """
    asked = read_music_study(study)
    loaded = None
    if asked.needs_model:
        loaded = None if model is None else given_model(model, options.get("device", "auto"))
    return run_study(
        asked,
        loaded,
        scale=scale,
        reference_stimulus=reference,
        seed=seed,
        embedding=_embedding(options),
        progress=progress,
    )
