"""Which clips, texts and prompts a step sees: a function of the seed and the step alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.training.recipe import AudioRecipe
from residual_audio.training.training_clips import Clips
from residual_audio.training.training_loop import generator


@dataclass(frozen=True)
class Batch:
    """One step's clips, each with one text, and one prompt of every class."""

    rows: Tensor
    texts: list[str]
    general: Tensor
    """True where the text is a class prompt, which fits every clip of the class."""
    labels: Tensor
    sources: Tensor
    movable: Tensor
    """Clips with a label may be rolled and mixed; those about order and attributes may not."""
    prompts: list[str]

    def positives(self) -> tuple[Tensor, Tensor]:
        """[clip, text] which texts fit a clip, and which are too near to be called negative.

        Clips of one class, and clips with the very same text, are not each other's negatives.
        """
        n = len(self.rows)
        kin = (self.labels[:, None] == self.labels[None, :]) & (self.labels >= 0)[:, None]
        same = torch.tensor([[a == b for b in self.texts] for a in self.texts])
        positive = torch.eye(n, dtype=torch.bool) | same | (kin & self.general[None, :])
        return positive, kin | positive

    def class_targets(self, clips: Clips) -> tuple[Tensor, Tensor]:
        """[clip, class] the label as weights (0 for clips without), and classes of its data set."""
        n_classes = len(clips.classes)
        target = torch.zeros(len(self.rows), n_classes)
        known = self.labels >= 0
        target[known.nonzero().flatten(), self.labels[known]] = 1.0
        return target, clips.class_sources[:, self.sources].T


class Batches:
    """Every data set is gone through in a new order each epoch; shares decide how fast."""

    def __init__(self, recipe: AudioRecipe, clips: Clips, seed: int, batch_size: int) -> None:
        self.recipe, self.clips, self.seed = recipe, clips, seed
        self.members = [
            ((clips.sources == s) & ~clips.held_out).nonzero().flatten()
            for s in range(len(recipe.data))
        ]
        if empty := [recipe.data[s].dataset for s, m in enumerate(self.members) if not len(m)]:
            raise InputError(f"no clip of '{empty[0]}' is left to learn from")
        self.counts = share_out(batch_size, [part.share for part in recipe.data])
        self._order = lru_cache(maxsize=2 * len(self.members) + 2)(self._shuffled)

    def _shuffled(self, source: int, epoch: int) -> Tensor:
        members = self.members[source]
        return members[
            torch.randperm(len(members), generator=generator(self.seed, 10 + source, epoch))
        ]

    def rows(self, step: int) -> Tensor:
        out = []
        for source, count in enumerate(self.counts):
            size = len(self.members[source])
            for k in range(step * count, (step + 1) * count):
                out.append(self._order(source, k // size)[k % size])
        return torch.stack(out)

    def at(self, step: int) -> Batch:
        rows = self.rows(step)
        draw = generator(self.seed, 1, step)
        labels = self.clips.labels[rows]
        templates, classes = self.recipe.templates, self.clips.classes
        own = torch.rand(len(rows), generator=draw) < self.recipe.own_text
        picks = torch.randint(1 << 30, (len(rows),), generator=draw)
        texts, general = [], []
        for i, row in enumerate(rows.tolist()):
            mine = self.clips.texts[row]
            pick, label = int(picks[i]), int(labels[i])
            use_own = bool(mine) and (label < 0 or bool(own[i]))
            general.append(not use_own)
            if use_own:
                texts.append(mine[pick % len(mine)])
            else:
                texts.append(templates[pick % len(templates)].replace("{}", classes[label]))
        chosen = torch.randint(len(templates), (len(classes),), generator=draw).tolist()
        return Batch(
            rows=rows,
            texts=texts,
            general=torch.tensor(general),
            labels=labels,
            sources=self.clips.sources[rows],
            movable=labels >= 0,
            prompts=[templates[t].replace("{}", c) for t, c in zip(chosen, classes, strict=True)],
        )


def all_texts(recipe: AudioRecipe, clips: Clips) -> list[str]:
    """Every text a step can ask for."""
    prompts = [t.replace("{}", c) for c in clips.classes for t in recipe.templates]
    return list(dict.fromkeys([*prompts, *(t for texts in clips.texts for t in texts)]))


def share_out(size: int, shares: list[float]) -> list[int]:
    """`size` places by share (largest remainders), at least one each."""
    total = sum(shares)
    exact = [size * share / total for share in shares]
    counts = [max(1, int(e)) for e in exact]
    if sum(counts) > size:
        raise InputError(f"a batch of {size} is too small for {len(shares)} data sets")
    order = sorted(range(len(shares)), key=lambda i: exact[i] - int(exact[i]), reverse=True)
    for i in order[: size - sum(counts)]:
        counts[i] += 1
    return counts
