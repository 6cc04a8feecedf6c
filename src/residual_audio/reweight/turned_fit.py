"""Edits that turn, fitted to some clips: which units are worth most, and the least of the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from residual_audio.models.joint import JointHead
from residual_audio.reweight.direct_loss import DirectLoss
from residual_audio.reweight.keep_in_place import Drift
from residual_audio.reweight.penalty import Bounds
from residual_audio.reweight.solver import Stopping
from residual_audio.reweight.terms import DirectTerms
from residual_audio.reweight.turned import Roots, Shape, TurnedClips, TurnedEdit, Value
from residual_audio.reweight.turned_solver import TurnedSolution, at_rest, solve_turned, steep

ON_THE_WAY, AT_END = Stopping(5e-2, 100, descent=5e-3), Stopping(5e-3, 2000, descent=5e-4)


class TurnedFit:
    """Edits of some clips, within bounds, while others stay where they are as far as is asked."""

    def __init__(
        self,
        loss: DirectLoss,
        head: JointHead,
        roots: Roots,
        shape: Shape,
        bounds: Bounds,
        held: Sequence[Drift] = (),
    ) -> None:
        self._loss, self._head, self._held, self.bounds = loss, head, held, bounds
        together = beside([loss.terms, *(part.terms for part in held)])
        self._rows = torch.arange(len(loss.terms.base))
        self._ends = list(accumulate(len(p.base) for p in (loss.terms, *(h.terms for h in held))))
        self.clips = TurnedClips(together, self._value(0.0), roots, shape)
        if head.first_product is not None:
            self.clips = self.clips.through(head.first_product)
        self.order = _worth(self.clips).argsort(descending=True, stable=True)

    def units(self, n: int) -> Tensor:
        """Those that are worth most."""
        return self.order[:n].sort().values

    def solve(
        self,
        units: Tensor,
        ridge: float,
        start: TurnedEdit | None,
        stop: Stopping,
        hold: float = 0.0,
    ) -> TurnedSolution:
        """These units alone; the edit is of all of them. `hold`: how strongly the others stay."""
        clips = self.clips.only(units)
        begin = None if start is None else start.at(units)
        # what is held is at rest at λ = 1, and so no part of the slope there
        slope = at_rest(clips)
        ridge, stop = ridge * steep(slope), replace(stop, unit=slope.steepest())
        found = solve_turned(clips.valued(self._value(hold)), self.bounds, ridge, begin, stop)
        return replace(found, edit=found.edit.among(units, self.clips.units))

    def _value(self, hold: float) -> Value:
        """What is made small, as a function of what the joint head's first product gives of all
        clips, or of their latents where it has none."""
        head = self._head
        to_joint = head.from_latent if head.first_product is None else head.after_product

        def value(x: Tensor) -> Tensor:
            own, *others = to_joint(x).tensor_split(self._ends[:-1])
            found = self._loss.objective(own, self._rows)
            for part, joint in zip(self._held, others, strict=True):
                found = found + hold * part.of_joint(joint)
            return found

        return value


def beside(parts: Sequence[DirectTerms]) -> DirectTerms:
    """Clips of several sources along the same axes, one below the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return replace(
        first,
        base=torch.cat([part.base for part in parts]),
        amplitudes=torch.cat([part.amplitudes for part in parts]),
        whole=torch.cat([part.whole for part in parts]),
    )


@torch.no_grad()
def latents_under(edit: TurnedEdit, terms: DirectTerms, roots: Roots) -> Tensor:
    """[clip, D]: where an edit (z) takes clips."""
    return terms.here + TurnedClips(terms, lambda latent: latent, roots).moved(edit)


def _worth(clips: TurnedClips) -> Tensor:
    """[unit]: how steeply the loss falls with its gains at λ = 1."""
    slope = at_rest(clips)
    # slopes in z are those in S over √b
    units = slope.turns.square().sum((1, 2)) * clips.roots.units**2
    if len(slope.means):
        units = units + (slope.means * clips.roots.means).square()
    return units
