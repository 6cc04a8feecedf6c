"""Holding in place what a model does elsewhere, while gains are fitted here.

Reference clips of other data are looked at through the same gains. How far they go is a part of
what is made small:

    κ · ½ mean ‖seen(λ) − seen(1)‖²

`seen` is what of a clip is held: the embedding, or its answers, that is its logits with the texts
of its own data, less their mean. The latter is the KL divergence of answers that are all equally
likely: that of the answers as they are vanishes where a model is sure, as it is on clips it was
trained on, and would let it become unsure. Directions of the embedding that no text of the
reference tells apart are free.

κ is lowered from infinity (nothing moves) for as long as no more held-out reference clips change
from right to wrong, or back, than right answers may be lost. What is lost net is less, but hides
behind answers that become right by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.direct.contributions import Contributions
from residual_audio.judge.answers import Judge
from residual_audio.models.joint import JointHead
from residual_audio.reweight.direct_loss import FromLatent, mean_metric
from residual_audio.reweight.terms import DirectTerms, direct_terms
from residual_audio.types import FloatArray

Hold = Literal["answers", "embeddings"]
STRENGTHS = (300.0, 100.0, 50.0, 30.0, 20.0, 12.0, 8.0, 5.0, 3.0, 2.0, 1.0)
"""In units of the loss: nats for each unit of KL divergence or of half a squared distance."""
FORM_CLIPS = 256
# what changes counts as kept within bounds when its upper 95% limit does
SURE = 1.645


@dataclass(frozen=True)
class Reference:
    """Clips of another run of the same model, and the answers they should keep giving."""

    name: str
    contributions: Contributions
    judge: Judge
    fit: np.ndarray
    held_out: np.ndarray
    """Whole groups, on which the loss is measured."""
    groups: Sequence[str]


@dataclass(frozen=True)
class KeepInPlace:
    """What may be lost elsewhere, and in which sense things are held in place."""

    references: tuple[Reference, ...]
    max_loss: float = 0.03
    """Share of reference clips whose right answer may be lost; surely no more answers change."""
    hold: Hold = "answers"


@dataclass(frozen=True)
class Cost:
    """Accuracy lost on the held-out clips of one reference."""

    name: str
    before: float
    after: float
    error: float
    """Standard error of the difference, over groups."""
    n: int
    changed: float = 0.0
    """Share of clips that were right and are wrong now, or the other way about."""
    changed_error: float = 0.0

    @property
    def lost(self) -> float:
        return self.before - self.after

    @property
    def at_most(self) -> float:
        """The upper 95% limit (one-sided) of what changes, and so of what is lost."""
        return self.changed + SURE * self.changed_error


class Drift:
    """How far clips go from where they are, as a function of gains: ½ mean ‖seen − before‖²."""

    def __init__(
        self,
        terms: DirectTerms,
        from_latent: FromLatent,
        root: Tensor | None,
        before: Tensor | None = None,
    ) -> None:
        self.terms, self._from_latent, self._root = terms, from_latent, root
        with torch.no_grad():
            self._before = self._seen(terms.here) if before is None else before
        self._form: FloatArray | None = None

    def of_joint(self, joint: Tensor) -> Tensor:
        """Of these joint vectors [clip, d]."""
        return 0.5 * (self._held_of(joint) - self._before).square().sum(1).mean()

    def _held_of(self, joint: Tensor) -> Tensor:
        unit = F.normalize(joint, dim=-1)
        return unit if self._root is None else unit @ self._root.to(unit)

    def _seen(self, latent: Tensor) -> Tensor:
        return self._held_of(self._from_latent(latent))

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Value and slope [gain] at λ = 1 + x."""
        latent = self.terms.shifted(x).requires_grad_()
        with torch.enable_grad():
            value = self.of_joint(self._from_latent(latent))
            value.backward()  # type: ignore[no-untyped-call]
        assert latent.grad is not None
        return value.item(), self.terms.pulled(latent.grad)

    @property
    def form(self) -> FloatArray:
        """A model of its curvature, [gain, gain]; the same everywhere."""
        if self._form is None:
            some = self.terms.here[:: max(1, len(self.terms.here) // FORM_CLIPS)]
            self._form = self.terms.energy(mean_metric(some, self._seen))
        return self._form

    def only(self, gains: np.ndarray) -> Drift:
        """The same as a function of these gains, the others at 1."""
        part = Drift(self.terms.only(gains), self._from_latent, self._root, self._before)
        part._form = self.form[np.ix_(gains, gains)]
        return part


@dataclass(frozen=True)
class Held:
    """A reference in the coordinates of the gains that are being fitted."""

    reference: Reference
    terms: DirectTerms
    head: JointHead

    def drift(self, rows: np.ndarray, hold: Hold) -> Drift:
        """How far these clips go in the sense in which they are held."""
        root = None if hold == "embeddings" else _answer_root(self.reference.judge)
        return Drift(self.terms.at(rows), self.head.from_latent, root)

    def cost(self, x: FloatArray) -> Cost:
        """What gains of 1 + x lose on the held-out clips."""
        return self.cost_at(self.terms.at(self.reference.held_out).shifted(x))

    def cost_at(self, latents: Tensor) -> Cost:
        """What is lost where the held-out clips have these latents."""
        rows = self.reference.held_out
        here, judge = self.terms.at(rows).here, self.reference.judge.at(rows)
        groups = [self.reference.groups[i] for i in rows]
        return cost_of(self.reference.name, judge, self.head.from_latent, (here, latents), groups)


def _answer_root(judge: Judge) -> Tensor:
    """[d, r]: an embedding times this has the length of its logits, less their mean, over √texts.

    As many columns as the texts differ in directions, however many texts there are.
    """
    texts = judge.texts.double()
    centred = texts - texts.mean(0)
    _, sizes, axes = torch.linalg.svd(centred, full_matrices=False)
    there = sizes > 1e-6 * sizes[0].clamp(min=1e-300)
    scale = judge.scale / len(texts) ** 0.5
    return (axes[there] * (scale * sizes[there])[:, None]).T.float()


def held_in(references: Sequence[Reference], like: DirectTerms, head: JointHead) -> list[Held]:
    """The references along the axes of the gains that are fitted."""
    return [
        Held(
            reference,
            direct_terms(
                reference.contributions,
                like.spectra,
                keep_mean=like.keep_mean,
                mean_gains=bool(len(like.means)),
            ),
            head,
        )
        for reference in references
    ]


def drifts(held: Sequence[Held], hold: Hold, *, everyone: bool) -> tuple[Drift, ...]:
    """Of the clips of each reference that hold; those on which a loss is measured are among them
    only when everything has been chosen (`everyone`)."""
    return tuple(
        one.drift(
            np.arange(len(one.reference.judge)) if everyone else one.reference.fit,
            hold,
        )
        for one in held
    )


@torch.no_grad()
def cost_of(
    name: str,
    judge: Judge,
    from_latent: Callable[[torch.Tensor], torch.Tensor],
    latents: tuple[torch.Tensor, torch.Tensor],
    groups: Sequence[str],
) -> Cost:
    """Accuracy with latents before and after, how many change, and standard errors over groups."""
    right = []
    for latent in latents:
        joint = from_latent(latent)
        measured = judge.measure(joint, torch.arange(len(joint)), joint)
        right.append(measured["correct"].numpy().astype(np.float64))
    before, after = right
    changed = np.abs(before - after)
    _, number = np.unique(np.asarray(groups), return_inverse=True)
    return Cost(
        name,
        float(before.mean()),
        float(after.mean()),
        _error(before - after, number),
        len(before),
        float(changed.mean()),
        _error(changed, number),
    )


def _error(values: FloatArray, number: np.ndarray) -> float:
    """Standard error of a mean over clips that come in groups."""
    n, g = len(values), int(number.max()) + 1
    by_group = np.bincount(number, values - values.mean())
    # one flipped answer more is never excluded by the clips that happen to be there
    return float(np.sqrt(max((by_group**2).sum() * g / max(g - 1, 1), 1.0)) / n)
