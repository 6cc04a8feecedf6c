"""Every weight of an encoder tuned on one's own pairs by the training loop: warm-up, cosine,
averaged weights, and a checkpoint from which a stopped fit goes on, on a CPU or a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.in_encoder import scores_of
from residual_audio.adaptation.methods.method import Fitted, InEncoder
from residual_audio.adaptation.problem import Problem
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.descent import Embed
from residual_audio.reweight.objectives import Objective, objective
from residual_audio.reweight.tuning import TunedWeights
from residual_audio.training.recipe import Optimisation
from residual_audio.training.training_loop import generator, train

EPOCHS, RATE, BATCH = 8, 1e-4, 32
CHECKPOINT_EVERY = 50


@dataclass(frozen=True)
class LoopFineTuning(InEncoder):
    """Fit on the clips that nothing is chosen by; the held-out ones say whether it is kept."""

    folder: Path = field(repr=False)
    """Where unfinished fits lie, one folder each; not a part of what is fitted."""
    epochs: int = EPOCHS
    rate: float = RATE
    batch_size: int = BATCH
    progress: Progress = field(default=SILENT, repr=False, compare=False)

    def fit(self, problem: Problem, split: Split) -> Fitted:
        model = problem.encoder.passes.model
        tuned = TunedWeights(model.encoder)
        embed = problem.encoder.embed_whole(tuned)
        loss = objective(problem.objective, problem.judge)
        try:
            before = _mean_loss(embed, loss, split.held_out)
            task = _Task(model.encoder, embed, loss, split, self._identity(problem, split))
            train(task, self._settings(split), self._place(task), model.device, self.progress)
            after = _mean_loss(embed, loss, split.held_out)
            kept = before is None or after is None or after < before
            if not kept:
                tuned.restore()
            scores = scores_of(problem, split.test, embed)
            became = [(p, p.detach().clone()) for p in tuned.parameters] if kept else []
        finally:
            tuned.restore()
            model.encoder.eval()
        n = sum(p.numel() for p in tuned.parameters)
        notes = {"kept": kept, "held_out_before": before, "held_out_loss": after}
        return Fitted(scores, n, notes=notes, weights=became)

    def _settings(self, split: Split) -> Optimisation:
        batch = min(self.batch_size, len(split.fit))
        steps = max(1, round(self.epochs * len(split.fit) / batch))
        return Optimisation(
            steps=steps,
            batch_size=max(2, batch),
            lr=self.rate,
            weight_decay=0.0,
            ema=min(0.99, 1 - 1 / (1 + steps / 10)),  # forgets what was before the last tenth
            checkpoint_every=CHECKPOINT_EVERY,
        )

    def _identity(self, problem: Problem, split: Split) -> dict[str, object]:
        clips = "\n".join(problem.clips[i].id for i in split.fit)
        return {
            "model": problem.about["model"]["sha256"],
            "clips": blake2b(clips.encode(), digest_size=16).hexdigest(),
            "objective": problem.objective,
            "seed": split.seed,
            "settings": [self.epochs, self.rate, self.batch_size],
        }

    def _place(self, task: _Task) -> Path:
        key = blake2b(repr(sorted(task.identity.items())).encode(), digest_size=8).hexdigest()
        return self.folder / key


class _Task:
    """Batches of the clips to fit, drawn by seed and step."""

    look_every = 0

    def __init__(
        self,
        encoder: nn.Module,
        embed: Embed,
        loss: Objective,
        split: Split,
        identity: dict[str, Any],
    ) -> None:
        self.module = _AsItRuns(encoder)
        self.identity = identity
        self._embed, self._loss = embed, loss
        self._rows, self._seed = torch.as_tensor(split.fit), split.seed
        self._batch = int(identity["settings"][2])

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        order = torch.randperm(len(self._rows), generator=generator(self._seed, step))
        batch = self._rows[order[: self._batch]].sort().values
        return self._loss(self._embed(batch), batch), {}

    def lr_scale(self, name: str) -> float:
        return 1.0

    def look(self, step: int) -> dict[str, object]:
        return {}

    def save_weights(self, folder: Path) -> None:
        """The loop's own checkpoint is all that is kept."""


class _AsItRuns(nn.Module):
    """Stays as it is when it runs: statistics that were learned on much more are not moved."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def train(self, mode: bool = True) -> _AsItRuns:
        super().train(False)
        return self


@torch.no_grad()
def _mean_loss(embed: Embed, loss: Objective, rows: np.ndarray) -> float | None:
    """None where no clip was held out."""
    if not len(rows):
        return None
    parts = torch.as_tensor(rows).split(BATCH)
    return float(sum(float(loss(embed(r), r)) * len(r) for r in parts) / len(rows))
