"""Classes without texts: the mean direction of their clips, and how sharply to answer by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.errors import InputError


def class_centroids(
    unit: Tensor, codes: np.ndarray, classes: Sequence[str], rows: np.ndarray
) -> Tensor:
    """[class, d], unit length: means of the unit vectors [clip, d] of these clips, by class."""
    own = torch.as_tensor(np.asarray(codes)[rows])
    found = []
    for code, name in enumerate(classes):
        mine = unit[torch.as_tensor(rows)[own == code]]
        if not len(mine):
            raise InputError(
                f"no clip is left to make a centroid of class '{name}' of (its clips are all in "
                "one fold or group), so answers cannot be judged without texts"
            )
        found.append(F.normalize(mine.mean(0), dim=-1))
    return torch.stack(found)


def best_scale(cosines: Tensor, positive: Tensor, candidates: Tensor | None = None) -> float:
    """The inverse temperature under which right answers [clip, class] are likeliest."""
    tried = torch.logspace(0, 4, 33).tolist()
    losses = []
    for scale in tried:
        logits = scale * cosines
        if candidates is not None:
            logits = logits.masked_fill(~candidates, -torch.inf)
        losses.append(float((logits.logsumexp(-1) - logits[positive]).mean()))
    return tried[int(np.argmin(losses))]
