"""Edits of a model that one number leads through, from nothing to all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.elsewhere_embedding import (
    Embedding,
    by_adapter,
    by_gains,
    by_map,
)
from residual_audio.adaptation.methods.in_encoder import lesson_of
from residual_audio.adaptation.methods.low_rank import LoRA
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.methods.ridge import Ridge
from residual_audio.adaptation.problem import Problem
from residual_audio.reweight.edit_size import edit_size
from residual_audio.reweight.few import FIRST
from residual_audio.reweight.gains import blend
from residual_audio.reweight.held_few import held_edits
from residual_audio.reweight.keep_in_place import drifts, held_in
from residual_audio.reweight.turned import Roots, along_axes
from residual_audio.types import Gains

BLENDS = (0.1, 0.25, 0.5, 0.75, 1.0)
LARGEST = (1.5, 2.0, 4.0, 8.0, 16.0)
NAN = float("nan")


@dataclass(frozen=True)
class FrontEdit:
    """A changed model: what it makes of clips, here and elsewhere, and how large the change is."""

    embed: Embedding
    energy: float = NAN
    """Of gains; what has none is not measured so."""
    distance: float = NAN
    units_moved: float = NAN


@dataclass(frozen=True)
class FrontFamily:
    """Edits that one number leads through."""

    name: str
    edits: Callable[[Problem, Split], dict[float, FrontEdit]]


def edit_of_gains(gains: Gains) -> FrontEdit:
    """Gains of either path."""
    size = edit_size(gains)
    moved = float(size["units_moved"])
    return FrontEdit(by_gains(gains), size["energy"], size["distance"], moved)


def held(name: str, method: ResiDual) -> FrontFamily:
    """Gains under references that are held more and more loosely."""

    def edits(problem: Problem, split: Split) -> dict[float, FrontEdit]:
        terms = method.terms(problem, split)
        few, lesson = method.few_of(problem, terms), lesson_of(problem, split)
        roots = Roots.of(terms.at(split.train))
        keep, loss = method.kept(problem), lesson.loss(terms, problem.head, split.train)
        here = held_in(keep.references, terms, problem.head)
        fit = few.fit(loss, problem.head, roots, drifts(here, keep.hold, everyone=False))
        units, out = fit.units(few.numbers(len(terms.units))[-1]), dict[float, FrontEdit]()
        for hold, edit in held_edits(fit, units, FIRST):
            along, x = along_axes(terms, roots.plain(edit))
            gains = along.gains(torch.from_numpy(1.0 + x).float(), problem.about)
            out[hold] = edit_of_gains(gains)
        return dict(reversed(out.items()))

    return FrontFamily(name, edits)


def bounded() -> FrontFamily:
    """Few gains within wider and wider bounds."""

    def edits(problem: Problem, split: Split) -> dict[float, FrontEdit]:
        out = {}
        for largest in LARGEST:
            gains = ResiDual(bounds=(0.0, largest), ridge=FIRST).fit(problem, split).gains
            assert gains is not None
            out[largest] = edit_of_gains(gains)
        return out

    return FrontFamily("largest gain", edits)


def blended(name: str, method: ResiDual) -> FrontFamily:
    """Finished gains between the identity and all of them."""

    def edits(problem: Problem, split: Split) -> dict[float, FrontEdit]:
        gains = method.fit(problem, split).gains
        assert gains is not None
        return {amount: edit_of_gains(blend(gains, amount)) for amount in BLENDS}

    return FrontFamily(f"blend of {name}", edits)


def mapped(method: Ridge) -> FrontFamily:
    """A linear map of the embeddings to the class texts: what a probe is that keeps to texts."""

    def edits(problem: Problem, split: Split) -> dict[float, FrontEdit]:
        _, change = method.change(problem, split)
        return {amount: FrontEdit(by_map(change, amount)) for amount in BLENDS}

    return FrontFamily("ridge to texts", edits)


def low_rank(method: LoRA) -> FrontFamily:
    """A trained update of W_O, between nothing and all of it."""

    def edits(problem: Problem, split: Split) -> dict[float, FrontEdit]:
        lora, _ = method.trained(problem, split)

        def by(amount: float) -> FrontEdit:
            part = deepcopy(lora)
            with torch.no_grad():
                for up in part.up:
                    up.mul_(amount)
            return FrontEdit(by_adapter(part))

        return {amount: by(amount) for amount in BLENDS}

    return FrontFamily("LoRA", edits)


def families(keep: Sequence[str], network: bool = False) -> list[FrontFamily]:
    """What the front shows; `network`: also what runs the encoder."""
    found = [
        held("references held", ResiDual(keep=tuple(keep))),
        held("references held, within bounds", ResiDual(keep=tuple(keep), bounds=(0.0, 4.0))),
        bounded(),
        blended("unbounded", ResiDual(unbounded=True)),
        blended("the default", ResiDual()),
        mapped(Ridge()),
    ]
    if network:
        inside = ResiDual(stages=(2, 3), path="network")
        found += [blended("gains in the network {2,3}", inside), low_rank(LoRA())]
    return found
