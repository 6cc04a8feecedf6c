"""Last stage: words. The text side alone learns what many wordings say of the sounds.

A model that has learned to hear order from a few plain wordings takes the place in the sentence for
the order. Its audio side is ready, so only the text tower learns here, against audio vectors that
are made once. Three things are asked of the tower:

- a caption in any wording goes where the plain wordings of the same clip went when the stage began,
- the own clip wins over the exchanged one, and the own caption likewise (as in the stage before),
- class prompts and captions that say nothing about order stay where the model that does not compose
  yet has them: what it knew of single sounds and of whole sentences is kept.
"""

from __future__ import annotations

import copy
import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.data.wordings import frames_for
from residual_audio.errors import InputError
from residual_audio.metrics.compa import outcomes
from residual_audio.models import native
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.text_small import SmallText
from residual_audio.progress import Progress
from residual_audio.training.compose_stage import load_tower_of
from residual_audio.training.corpus import corpus
from residual_audio.training.lexicon import LexicalText, deciding_entries, word_vectors
from residual_audio.training.losses import (
    cosine_distance,
    exchanged,
    relational,
    symmetric_contrastive,
)
from residual_audio.training.pair_data import (
    Captions,
    PairBatches,
    PairClips,
    load_pairs,
    reworded,
    without_wording,
)
from residual_audio.training.recipe import PairData, Recipe
from residual_audio.training.roles import RoleText, roles_of_unsaid
from residual_audio.training.training_clips import class_names, open_datasets
from residual_audio.training.training_loop import generator, train
from residual_audio.training.training_state import load_tensors, save_tensors

Tower = SmallText | LexicalText | RoleText
BATCH = 32
TELLS_ORDER = re.compile(
    r"\b(then|before|beforehand|after|afterwards?|follow\w*|first|final\w*|later|until|preced\w*|"
    r"eventually|next|begin\w*|start\w*|end\w*|prior|previous\w*|once|last)\b",
    re.IGNORECASE,
)
"""Captions with such a word are not held where they were: what they say is to be learned."""


@dataclass(frozen=True)
class SaidOfPairs:
    """Pairs whose sounds are vectors already."""

    pairs: PairClips
    """Its features are unit vectors of the clips: [item, 2, d]."""
    plain: Tensor
    """[item, 2, d] where the plain wordings of each clip are to be found."""


class WordingTask:
    """Texts alone; see the top of the file."""

    look_every = 0

    def __init__(
        self,
        recipe: Recipe,
        model: AudioTextModel,
        before: SmallText,
        said: SaidOfPairs,
        judged: SaidOfPairs | None,
        kept: Sequence[str],
        words: Tensor | None = None,
    ) -> None:
        assert recipe.wording is not None
        assert isinstance(model.text, SmallText)
        self.settings, self.seed, self.model = recipe.wording, recipe.seed, model
        if words is None:
            words = torch.zeros(model.text.settings.vocabulary, 1)
        self.module = self._learner(model.text, words)
        self.scale = torch.tensor(float(model.logit_scale))
        self.before, self.kept = before.requires_grad_(False).eval(), list(kept)
        if isinstance(self.module, RoleText):  # the others cannot move
            self.kept = texts_with(model.text, self.kept, self.module.moved())
        self.said, self.judged = said, judged
        steps = self.settings.optimisation.steps
        self.batches = PairBatches(
            self.settings.data,
            said.pairs,
            recipe.seed,
            self.settings.items,
            self.settings.captions,
            steps,
        )
        self.look_every = self.settings.look_every
        self.identity: dict[str, Any] = {
            "wording": self.settings.model_dump(
                mode="json", exclude={"optimisation", "validation", "look_every"}
            ),
            "model": model.sha256,
            "seed": recipe.seed,
            "pairs": list(said.pairs.fingerprints),
        }

    def _learner(self, tower: SmallText, words: Tensor) -> LexicalText | RoleText:
        if self.settings.roles:
            return RoleText(tower, roles_of_unsaid(tower, words))
        frames = [f for part in self.settings.data for f in order_frames(part)]
        return LexicalText(tower, words, deciding_entries(tower, frames))

    def lr_scale(self, name: str) -> float:
        if isinstance(self.module, RoleText):
            return float(name == "roles")
        if name == "shared":
            return self.settings.lexicon_lr if self.settings.lexicon else 0.0
        return self.settings.tokens_lr if name == "tower.tokens.weight" else 1.0

    def _vectors(self, said: list[str], held: list[str], draw: torch.Generator) -> Tensor:
        """Of captions of pairs, half of which have strange words in them, and of held texts."""
        unknown = None
        if self.settings.unknown:
            half = torch.rand(len(said), generator=draw) < 0.5
            unknown = self.settings.unknown * half
        parts = [self.module.said(said, unknown, draw), by_length(self.module, held)]
        return F.normalize(torch.cat(parts).float(), dim=-1)

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        batch, told = self.batches.at(step), self.settings
        rows = self.batches.rows(step)
        device = self.module.positions.device
        chosen = generator(self.seed, 5, step)
        held = [self.kept[i] for i in _some(len(self.kept), told.kept, chosen)]
        vectors = self._vectors(batch.texts, held, chosen)
        text, still = vectors[: len(batch.texts)], vectors[len(batch.texts) :]
        with torch.no_grad():
            there = F.normalize(by_length(self.before.to(device), held).float(), dim=-1)
        plain = self.said.plain[rows].flatten(0, 1).repeat_interleave(batch.k, 0).to(device)
        audio = batch.features.to(device)
        with torch.autocast(device.type, enabled=False):
            parts = {
                "plain": told.plain_weight * cosine_distance(text, plain),
                "contrast": told.contrast_weight
                * symmetric_contrastive(
                    audio, text, self.scale.to(device), batch.positives().to(device)
                ),
                "exchanged": told.exchanged_weight
                * exchanged(
                    audio.unflatten(0, (-1, 2)),
                    text.unflatten(0, (-1, 2, batch.k)),
                    self.scale.to(device),
                    batch.told_apart().to(device),
                ),
                "moved": told.anchor
                * (cosine_distance(still, there) + told.relational * relational(still, there)),
            }
            loss = torch.stack(list(parts.values())).sum()
        return loss, {key: float(value.detach()) for key, value in parts.items()}

    @torch.inference_mode()
    def look(self, step: int) -> dict[str, object]:
        """F, G and H of every data set that is only looked at, and how far kept texts moved."""
        tower = self.module.folded()
        sample = self.kept[:: max(1, len(self.kept) // 512)]
        now, then = (F.normalize(t(sample).float(), dim=-1) for t in (tower, self.before))
        found: dict[str, Any] = {"moved": float(cosine_distance(now, then))}
        if self.judged is not None:
            found |= score_wordings(tower, self.judged.pairs)
        return found

    def save_weights(self, folder: Path) -> None:
        native.save(with_tower(self.model, self.module.folded()), folder)


def by_length(
    tower: SmallText | LexicalText | RoleText, texts: Sequence[str], parts: int = 3
) -> Tensor:
    """Vectors of texts, those of like length together: few long ones do not pad all the others."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    size = -(-len(texts) // parts)
    found = [tower([texts[i] for i in order[k : k + size]]) for k in range(0, len(order), size)]
    back = sorted(range(len(order)), key=lambda i: order[i])
    return torch.cat(found)[back]


def _some(n: int, k: int, draw: torch.Generator) -> list[int]:
    return torch.randint(n, (min(k, n),), generator=draw).tolist()


@torch.inference_mode()
def score_wordings(tower: SmallText, pairs: PairClips) -> dict[str, float]:
    """F, G and H over every caption of every item, for each data set by its number."""
    texts = [said[k] for item in pairs.captions for k in range(len(item[0])) for said in item]
    places = torch.tensor([i for i, item in enumerate(pairs.captions) for _ in item[0]])
    vectors = by_length(tower, texts, -(-len(texts) // 256)).float()
    text = F.normalize(vectors, dim=-1).cpu().unflatten(0, (-1, 2))
    passed = outcomes(torch.einsum("itd,iad->ita", text, pairs.features[places].float()).numpy())
    sources = pairs.sources[places]
    return {
        f"pairs_{source}_{name}": float(passed[name][(sources == source).numpy()].mean())
        for source in pairs.sources.unique().tolist()
        for name in ("f", "g", "h")
    }


def with_tower(model: AudioTextModel, tower: SmallText) -> AudioTextModel:
    """The model with another text side."""
    made = copy.copy(model)
    made.text = copy.deepcopy(tower).cpu().requires_grad_(False)
    return made


@torch.inference_mode()
def pair_vectors(
    parts: Sequence[PairData],
    model: AudioTextModel,
    root: Path,
    cache: Path,
    progress: Progress,
) -> SaidOfPairs:
    """Every clip through the audio side once, every plain caption through the text side."""
    bare = load_pairs([without_wording(part) for part in parts], model.spec, root, cache, progress)
    assert isinstance(model.text, SmallText)
    key = " ".join((*bare.fingerprints, str(len(bare)), model.sha256))
    path = cache / f"vectors-{hashlib.sha256(key.encode()).hexdigest()[:16]}.safetensors"
    if not path.is_file():
        progress.note(f"vectors of {2 * len(bare)} clips and of what is said of them")
        rows = bare.features.flatten(0, 1).split(BATCH)
        heard = torch.cat([model.head(model.encoder.encode(part.float())) for part in rows])
        audio = F.normalize(heard, dim=-1).unflatten(0, (-1, 2))
        save_tensors(path, {"audio": audio, "plain": _means(model.text, bare.captions)})
    vectors = load_tensors(path)
    pairs = replace(bare, features=vectors["audio"])
    return SaidOfPairs(reworded(parts, pairs, root), vectors["plain"])


def _means(tower: SmallText, said: Sequence[Captions]) -> Tensor:
    """[item, 2, d] the mean direction of the captions of each clip."""
    unique = sorted({text for item in said for captions in item for text in captions})
    parts = [tower(unique[i : i + 256]) for i in range(0, len(unique), 256)]
    vectors = F.normalize(torch.cat(parts), dim=-1)
    at = {text: i for i, text in enumerate(unique)}
    means = [vectors[[at[t] for t in captions]].mean(0) for item in said for captions in item]
    return F.normalize(torch.stack(means), dim=-1).unflatten(0, (-1, 2))


def order_frames(part: PairData) -> tuple[str, ...]:
    """The wordings of a data set about order; none of another."""
    if part.options.get("kind") != "order":
        return ()
    return frames_for("order", "", str(part.options.get("wording") or "plain"))


def silent_about_order(texts: Sequence[str]) -> list[str]:
    """Those that no word of order is in."""
    return [text for text in texts if not TELLS_ORDER.search(text)]


def texts_with(tower: SmallText, texts: Sequence[str], entries: Tensor) -> list[str]:
    """Those that have one of the entries [entry] of the vocabulary in them."""
    chosen = set(entries.nonzero().flatten().tolist())
    read = tower.tokenizer.encode_batch(list(texts))
    return [text for text, found in zip(texts, read, strict=True) if chosen & set(found.ids)]


def texts_to_hold(recipe: Recipe, root: Path) -> list[str]:
    """Class prompts in every template, then captions, titles and phrases without words of order."""
    assert recipe.wording is not None
    datasets = open_datasets(recipe.audio, root)
    prompts = [t.replace("{}", c) for c in class_names(datasets) for t in recipe.audio.templates]
    text = recipe.text
    out = (*text.hold_out, *recipe.wording.hold_out)
    found = corpus(root, text.corpus, out, (), text.phrases, recipe.seed)
    return [*prompts, *silent_about_order(found)]


def run_wording_stage(
    recipe: Recipe,
    start: Path,
    plain: Path,
    root: Path,
    out: Path,
    device: torch.device,
    progress: Progress,
    stop_after: int | None,
) -> Path:
    """The model `start` with a text side that knows many wordings, in `out / model`."""
    settings = recipe.wording
    assert settings is not None
    model, before = native.load(start), load_tower_of(plain)
    if not isinstance(model.text, SmallText):
        raise InputError(f"'{start}' has no text tower of ours to teach wordings to")
    cache = out / "cache"
    said = pair_vectors(settings.data, model, root, cache, progress)
    judged = None
    if settings.validation:
        judged = pair_vectors(settings.validation, model, root, cache, progress)
    kept = texts_to_hold(recipe, root)
    progress.note(f"{len(said.pairs)} items, {len(kept)} texts held")
    words = None
    if settings.lexicon:
        words = word_vectors(model.text, settings.lexicon, cache, progress)
    task = WordingTask(recipe, model, before, said, judged, kept, words)
    done = train(task, settings.optimisation, out / "wording", device, progress, stop_after)
    folder = out / ("model" if done == settings.optimisation.steps else "partial")
    shutil.rmtree(folder, ignore_errors=True)
    made = with_tower(model, task.module.folded())
    blend_into(made.text, before, settings.blend)
    dtype = torch.float16 if recipe.weights == "float16" else torch.float32
    native.save(made.to(dtype), folder, {"trained": {"recipe": recipe.name, "seed": recipe.seed}})
    return folder


@torch.no_grad()
def blend_into(tower: torch.nn.Module | None, before: SmallText, share: float) -> None:
    """Weights between the two: (1 − share) · tower + share · before."""
    if tower is None or not share:
        return
    for own, other in zip(tower.parameters(), before.parameters(), strict=True):
        own.lerp_(other, share)
