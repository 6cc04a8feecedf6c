"""What a change to the audio embedding does to the answers, clip by clip.

Texts are the candidates: one prompt a class, or every caption of the set. With s = cosines of a
clip with the texts and T the texts that are right for it:

- `correct`  the best right text beats every wrong one (0 or 1; a tie is a failure)
- `margin`   max over T of s − max over the rest
- `loss`     −log of the probability of T at the model's own temperature
- `rank`     rank of the best right text, from 1
- `shift`    1 − cosine with the unchanged embedding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.errors import InputError
from residual_audio.types import FloatArray

MEASURES = ("correct", "margin", "loss", "rank", "shift")


@dataclass(frozen=True)
class Judge:
    """Candidate texts and which of them are right for each clip."""

    texts: Tensor
    """[text, d], unit length."""
    positive: Tensor
    """[clip, text] bool; no row is empty."""
    scale: float
    """The model's inverse temperature."""
    candidates: Tensor | None = None
    """[clip, text] bool: the texts that a clip chooses among; None for all."""
    own: bool = False
    """The texts were written for these clips (captions): of fewer clips only theirs are left, so
    that nothing is learnt from the texts of clips that are tested."""

    def __post_init__(self) -> None:
        if self.positive.shape[1] != len(self.texts):
            raise InputError(
                f"{self.positive.shape[1]} columns of answers for {len(self.texts)} texts"
            )
        if len(self.texts) < 2:
            raise InputError("one class or text leaves nothing to choose from: give at least two")
        if not bool(torch.isfinite(self.texts).all()):
            raise InputError("a text embedding holds values that are not finite")
        empty = (~self.positive.any(1)).nonzero()[:, 0]
        if len(empty):
            raise InputError(f"clip {int(empty[0])} has no right answer among the texts")

    def __len__(self) -> int:
        return len(self.positive)

    @classmethod
    def for_labels(
        cls, labels: Sequence[str | None], classes: Sequence[str], texts: FloatArray, scale: float
    ) -> Judge:
        """One prompt a class; `texts` in the order of `classes`."""
        positive = F.one_hot(torch.from_numpy(class_index(labels, classes)), len(classes)).bool()
        return cls(_unit(texts), positive, scale)

    @classmethod
    def for_captions(
        cls, owner: Sequence[int], texts: FloatArray, n_clips: int, scale: float
    ) -> Judge:
        """Caption i belongs to clip `owner[i]`."""
        positive = torch.zeros(n_clips, len(texts), dtype=torch.bool)
        positive[torch.as_tensor(owner), torch.arange(len(texts))] = True
        return cls(_unit(texts), positive, scale)

    @classmethod
    def for_answers(cls, positive: np.ndarray, texts: FloatArray, scale: float) -> Judge:
        """Texts of the clips' own, each right for any of them: `positive` [clip, text]."""
        return cls(_unit(texts), torch.from_numpy(positive), scale, own=True)

    def at(self, clips: np.ndarray) -> Judge:
        """The same for these clips only, in this order."""
        which = torch.as_tensor(clips)
        if self.own:
            used = self.positive[which].any(0)
            return replace(self, texts=self.texts[used], positive=self.positive[which][:, used])
        among = None if self.candidates is None else self.candidates[which]
        return replace(self, positive=self.positive[which], candidates=among)

    def logits(self, joint: Tensor) -> Tensor:
        """Cosines at the model's temperature: [..., text]."""
        return self.scale * (F.normalize(joint, dim=-1) @ self.texts.T.to(joint))

    def measure(self, joint: Tensor, clips: Tensor, before: Tensor) -> dict[str, Tensor]:
        """Measures of embeddings [..., clip, d] of these clips, `before` [clip, d] unchanged."""
        logits = self.logits(joint)  # ... clip text
        if self.candidates is not None:
            logits = logits.masked_fill(~self.candidates[clips].to(joint.device), -torch.inf)
        positive = self.positive[clips].to(joint.device)
        right = logits.masked_fill(~positive, -torch.inf).amax(-1)
        wrong = logits.masked_fill(positive, -torch.inf)
        best_wrong = wrong.amax(-1)
        loss = logits.logsumexp(-1) - logits.masked_fill(~positive, -torch.inf).logsumexp(-1)
        return {
            "correct": (right > best_wrong).to(logits.dtype),
            "margin": (right - best_wrong) / self.scale,
            "loss": loss,
            "rank": 1 + (wrong >= right[..., None]).sum(-1).to(logits.dtype),
            "shift": 1 - F.cosine_similarity(joint, before.expand_as(joint), dim=-1),
        }


def class_index(labels: Sequence[str | None], classes: Sequence[str]) -> np.ndarray:
    """Labels as integers; a missing or unknown label is an error that names the clip."""
    order = {name: i for i, name in enumerate(classes)}
    if len(order) < 2:
        raise InputError(f"there is only one class ({list(order)}): nothing to tell apart")
    out = np.empty(len(labels), np.int64)
    for i, label in enumerate(labels):
        if label is None:
            raise InputError(f"clip {i} has no label: this needs labelled clips")
        if label not in order:
            raise InputError(f"clip {i} is labelled '{label}', which is not among the classes")
        out[i] = order[label]
    return out


def _unit(texts: FloatArray) -> Tensor:
    return F.normalize(torch.as_tensor(np.asarray(texts), dtype=torch.float32), dim=-1)
