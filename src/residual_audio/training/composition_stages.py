"""The stages that teach composition: one thing alone first (`order`), then everything (`compose`),
then more ways to say it (`wording`).

Order is told by nothing a model of single sounds has: both sides must find it, and neither gets a
gradient before the other has. Plain pairs of one kind got there in a hundred steps; many kinds in
many wordings from the start did not (`docs/nano.md`). So a recipe may have a stage for that.
"""

from __future__ import annotations

from pathlib import Path

import torch

from residual_audio.errors import InputError
from residual_audio.models.families import NANO
from residual_audio.progress import Progress
from residual_audio.training.audio_stage import finish, run_stage
from residual_audio.training.compose_stage import ComposeTask, load_tower_of, weights_of
from residual_audio.training.pair_data import load_pairs
from residual_audio.training.recipe import ComposeRecipe, Recipe, WordingRecipe
from residual_audio.training.training_clips import front_end_spec, load_clips, open_datasets
from residual_audio.training.wording_stage import run_wording_stage

STAGES = ("order", "compose", "wording")
MADE = {"order": "ordered", "compose": "composed", "wording": "model"}
"""What a stage that is not the last leaves in the run's folder."""


def stages_of(recipe: Recipe) -> tuple[str, ...]:
    """Those that the recipe has."""
    return tuple(name for name in STAGES if getattr(recipe, name) is not None)


def begins_elsewhere(recipe: Recipe) -> bool:
    """Whether composition begins with a model from outside the run."""
    found = stages_of(recipe)
    return bool(found) and settings_of(recipe, found[0]).start is not None


def settings_of(recipe: Recipe, name: str) -> ComposeRecipe | WordingRecipe:
    every = {"order": recipe.order, "compose": recipe.compose, "wording": recipe.wording}
    found = every[name]
    if found is None:
        raise InputError(f"recipe '{recipe.name}' has no stage '{name}'")
    return found


def beginning(recipe: Recipe, name: str, root: Path, out: Path) -> tuple[Path, Path]:
    """The model a stage begins with, and the one that single sounds are held to: the model that
    does not compose yet."""
    settings, found = settings_of(recipe, name), stages_of(recipe)
    outside = settings_of(recipe, found[0]).start
    if isinstance(settings, WordingRecipe) and settings.held_to is not None:
        outside = settings.held_to
    plain = out / "plain" if outside is None else _place(root, outside)
    start = plain
    if settings.start is not None:
        start = _place(root, settings.start)
    elif name != found[0]:
        start = out / MADE[found[found.index(name) - 1]]
    for folder in (start, plain):
        if not (folder / "config.json").is_file():
            raise InputError(
                f"no model '{folder}' to begin '{name}' with: run the stages before, or set "
                f"{found[0]}.start"
            )
    return start, plain


def _place(root: Path, name: str) -> Path:
    """A model folder below the data root, or the bundled one by its name."""
    return NANO if name == "nano" else root / name


def run(
    recipe: Recipe,
    name: str,
    root: Path,
    out: Path,
    device: torch.device,
    progress: Progress,
    stop_after: int | None,
    tensorboard: bool,
) -> Path:
    """One of the stages; returns the folder of the model it made."""
    settings = settings_of(recipe, name)
    start, plain = beginning(recipe, name, root, out)
    if isinstance(settings, WordingRecipe):
        return run_wording_stage(recipe, start, plain, root, out, device, progress, stop_after)
    recipe = _single_sounds(recipe, settings, root)
    cache, spec = out / "cache", front_end_spec(recipe.audio)
    clips = load_clips(recipe.audio, root, cache, recipe.seed, progress)
    pairs = load_pairs(settings.data, spec, root, cache, progress, settings.told)
    judged = None
    if settings.validation:
        judged = load_pairs(settings.validation, spec, root, cache, progress)
    task = ComposeTask(recipe, settings, clips, pairs, judged, load_tower_of(start))
    task.start_from(weights_of(start, task.module, clips), weights_of(plain, task.module, clips))
    progress.note(f"{len(pairs)} compositional items, beginning with '{start.name}'")
    done = run_stage(
        task, settings.optimisation, out / name, device, progress, stop_after, tensorboard
    )
    made = "model" if name == stages_of(recipe)[-1] else MADE[name]
    return finish(recipe, task.module, out / (made if done else "partial"), None)


def _single_sounds(recipe: Recipe, settings: ComposeRecipe, root: Path) -> Recipe:
    """Only labelled clips are held where they were: clips about order are what is to change.

    Without ordinary losses there is nothing to learn from a teacher either.
    """
    audio = recipe.audio
    labelled = zip(audio.data, open_datasets(audio, root), strict=True)
    update: dict[str, object] = {"data": tuple(part for part, data in labelled if data.classes)}
    if not settings.ordinary_weight:
        update["distil"] = None
    return recipe.model_copy(update={"audio": audio.model_copy(update=update)})
