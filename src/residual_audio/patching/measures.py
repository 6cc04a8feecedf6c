"""What an exchange is measured by: numbers of a joint embedding that are high for the clean clip.

- `difference`  cosine with the clean clip's caption − cosine with the corrupt clip's
- `margin`      cosine with the clean clip's best caption − the best of all captions not its own
- `embedding`   cosine with the clean clip's own embedding; needs no text

All are differentiable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor
from torch.nn import functional as F

from residual_audio.errors import InputError

MeasureName = Literal["difference", "margin", "embedding"]
MEASURES: tuple[MeasureName, ...] = get_args(MeasureName)
Measure = Callable[[Tensor, Tensor], Tensor]
"""(joint [n, d], clean clip's joint [d]) → [n]"""


@dataclass(frozen=True)
class TextMargin:
    """Best cosine with the right texts less the best with the wrong ones."""

    right: Tensor
    """[text, d], unit length."""
    wrong: Tensor

    def __call__(self, joint: Tensor, clean: Tensor) -> Tensor:
        unit = F.normalize(joint, dim=-1)
        right = (unit @ self.right.T.to(joint)).amax(-1)
        return right - (unit @ self.wrong.T.to(joint)).amax(-1)


def likeness(joint: Tensor, clean: Tensor) -> Tensor:
    """Cosine with the clean clip."""
    return F.cosine_similarity(joint, clean[None], dim=-1)


def digest_of(measure: Measure) -> str:
    """What tells two measures apart; a function of the user's own cannot be told."""
    if measure is likeness:
        return "embedding"
    if not isinstance(measure, TextMargin):
        raise InputError("what is measured by a function of your own cannot be kept and resumed")
    digest = hashlib.sha256()
    for vectors in (measure.right, measure.wrong):
        digest.update(vectors.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
