"""A whole training run in one folder that can be resumed: text tower, audio side, tuning together,
composition.

With a sentence encoder, text tower and audio side learn the same space from it, independently of
each other (on two machines, if need be); tuning lets them meet. Without one, the tower is learned
together with the audio, from nothing. Composition begins with a finished model: that of the stages
before (`plain` in the run's folder), or any other.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.files import write_json
from residual_audio.progress import SILENT, Progress
from residual_audio.provenance import collect
from residual_audio.store.lock import writing, writing_part
from residual_audio.training import composition_stages as composition
from residual_audio.training.audio_stage import AudioTask, finish, run_stage
from residual_audio.training.batches import all_texts
from residual_audio.training.corpus import corpus, texts_by_clip
from residual_audio.training.label_stage import LabelTask, check_labels_alone
from residual_audio.training.recipe import Recipe
from residual_audio.training.sentence import embed_sentences, into_space, sentence_space
from residual_audio.training.text_stage import has_tower, load_tower, run_text_stage
from residual_audio.training.training_clips import Clips, class_names, load_clips, open_datasets
from residual_audio.training.training_state import averaged

STAGES = ("text", "audio", "tune", *composition.STAGES)


def texts_to_learn(recipe: Recipe, root: Path) -> tuple[list[str], list[str]]:
    """The whole corpus; and of it, class prompts in every template and the clips' own texts."""
    datasets = open_datasets(recipe.audio, root)
    extra = [t.replace("{}", c) for c in class_names(datasets) for t in recipe.audio.templates]
    for part, dataset in zip(recipe.audio.data, datasets, strict=True):
        own = texts_by_clip(root, part.texts) if part.texts else {}
        for clip in dataset.clips:
            extra += [*clip.captions, *own.get(Path(clip.id).stem, [])]
    text = recipe.text
    texts = corpus(root, text.corpus, text.hold_out, extra, text.phrases, recipe.seed)
    return texts, list(dict.fromkeys(text for text in extra if text.strip()))


def run_training(
    recipe: Recipe,
    root: Path,
    out: Path,
    device: torch.device,
    stage: str = "all",
    stop_after: int | None = None,
    progress: Progress = SILENT,
    tensorboard: bool = False,
) -> Path:
    """Train what the recipe says into `out`; returns the folder of what was made.

    `stop_after` ends the audio stage early (or composition, where the run begins with it); run
    again to go on.
    """
    if stage not in (*STAGES, "all"):
        raise InputError(f"no stage '{stage}'; there are: {', '.join(STAGES)}, all")
    out.mkdir(parents=True, exist_ok=True)
    # stages of one run may be trained on several machines at once, each by one
    held = writing(out) if stage == "all" else writing_part(out, stage)
    with held:
        return _trained(recipe, root, out, device, stage, stop_after, progress, tensorboard)


def _trained(
    recipe: Recipe,
    root: Path,
    out: Path,
    device: torch.device,
    stage: str,
    stop_after: int | None,
    progress: Progress,
    tensorboard: bool,
) -> Path:
    asked = recipe.model_dump(mode="json")
    write_json(out / "run.json", collect(seed=recipe.seed, task="train", recipe=asked))
    torch.use_deterministic_algorithms(True, warn_only=True)
    whole = stage == "all"
    if stage not in composition.STAGES and not (whole and composition.begins_elsewhere(recipe)):
        made = _before_composition(
            recipe, root, out, device, stage, stop_after, progress, tensorboard
        )
        if not whole or made.name != "plain":
            return made
        stop_after = None  # it has done its part
    stages = composition.stages_of(recipe) if whole else (stage,)
    for name in stages:
        made = composition.run(recipe, name, root, out, device, progress, stop_after, tensorboard)
        if made.name == "partial":
            break
    return made


def _before_composition(
    recipe: Recipe,
    root: Path,
    out: Path,
    device: torch.device,
    stage: str,
    stop_after: int | None,
    progress: Progress,
    tensorboard: bool,
) -> Path:
    finished = out / ("plain" if composition.stages_of(recipe) else "model")
    if recipe.audio.objective == "labels":
        check_labels_alone(recipe, bool(composition.stages_of(recipe)))
        clips = load_clips(recipe.audio, root, out / "cache", recipe.seed, progress)
        labelled = LabelTask(recipe, clips)
        settings = recipe.audio.optimisation
        done = run_stage(
            labelled, settings, out / "audio", device, progress, stop_after, tensorboard
        )
        return finish(recipe, labelled.module, finished if done else out / "partial", None)
    texts, needed = texts_to_learn(recipe, root)
    tower = None
    if stage in ("text", "all") or recipe.text.encoder is None:
        tower = run_text_stage(
            recipe.text, texts, needed, out / "text", recipe.seed, device, progress
        )
    elif has_tower(out / "text"):
        tower = load_tower(out / "text")
    if stage == "text":
        return out / "text"
    clips = load_clips(recipe.audio, root, out / "cache", recipe.seed, progress)
    anchor = _anchor(recipe, clips, texts, out / "text")
    alone = anchor is not None  # the audio side learns against the sentence encoder
    task = AudioTask(
        recipe,
        clips,
        None if alone else tower,
        anchor,
        recipe.audio.optimisation,
        0.0 if alone else recipe.audio.text_lr,
    )
    if stage == "tune":
        if not averaged(out / "audio", task.module):
            raise InputError(f"'{out}' has no audio side yet: run the stage 'audio' first")
    elif not run_stage(
        task, recipe.audio.optimisation, out / "audio", device, progress, stop_after, tensorboard
    ):
        return finish(recipe, task.module, out / "partial", tower)
    if recipe.tune is None or stage == "audio":
        return finish(recipe, task.module, finished, tower)
    if tower is None:
        raise InputError(f"'{out}' has no text tower yet: run the stage 'text' first")
    settings = recipe.tune.optimisation
    tuned = AudioTask(recipe, clips, tower, anchor, settings, recipe.tune.text_lr)
    start = {k: v for k, v in task.module.state_dict().items() if not k.startswith("text.")}
    tuned.module.load_state_dict(start, strict=False)
    done = run_stage(tuned, settings, out / "tune", device, progress, None, tensorboard)
    return finish(recipe, tuned.module, finished if done else out / "partial", None)


def _anchor(
    recipe: Recipe, clips: Clips, corpus_texts: list[str], folder: Path
) -> dict[str, Tensor] | None:
    """Unit vectors of the clips' texts from the sentence encoder, where the recipe has one."""
    text = recipe.text
    if text.encoder is None:
        return None
    space = sentence_space(text.encoder, corpus_texts, text.d_out, text.even, folder)
    wanted = all_texts(recipe.audio, clips)
    vectors = into_space(embed_sentences(text.encoder, wanted, cache=folder), space)
    return dict(zip(wanted, torch.from_numpy(vectors), strict=True))
