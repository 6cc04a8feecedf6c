"""Every method of the comparison, in the order of the table. A new one is one line here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from residual_audio.adaptation.methods.all_but_the_top import AllButTheTop
from residual_audio.adaptation.methods.bitfit import BitFit
from residual_audio.adaptation.methods.fine_tuning import FineTuning
from residual_audio.adaptation.methods.head_tuning import HeadTuning
from residual_audio.adaptation.methods.least_squares import ClosedForm
from residual_audio.adaptation.methods.linear_probe import LinearProbe
from residual_audio.adaptation.methods.low_rank import LoRA
from residual_audio.adaptation.methods.method import Method
from residual_audio.adaptation.methods.output_gains import OutputGains
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.methods.ridge import Ridge
from residual_audio.adaptation.methods.rule import Rule
from residual_audio.adaptation.methods.shuffled import Shuffled
from residual_audio.adaptation.methods.unadapted import PromptEnsemble, ZeroShot
from residual_audio.adaptation.methods.whitening import Whitening
from residual_audio.adaptation.problem import Problem
from residual_audio.errors import InputError
from residual_audio.reweight.axes import Components
from residual_audio.reweight.rules import STRATEGIES

Kind = Literal["reference", "residual", "control", "rule", "baseline", "network"]
STAGE_SETS = ((0,), (1,), (2,), (3,), (2, 3), (0, 1, 2, 3))
COARSE, EVR = Components(coarse=True), Components(evr=0.9)


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    key: str
    """What people type, and what finds it."""
    label: str
    """What is printed."""
    kind: Kind
    method: Method


def name_of(stages: Sequence[int]) -> str:
    """`{2,3}`, and `{0–3}` for a run of more than two."""
    if len(stages) > 2 and list(stages) == list(range(stages[0], stages[-1] + 1)):
        return f"{{{stages[0]}–{stages[-1]}}}"
    return "{" + ",".join(map(str, stages)) + "}"


def heads_key(stages: Sequence[int]) -> str:
    """The key of gains of all heads of these stages: `heads-23`."""
    return "heads-" + "".join(map(str, stages))


def _heads(stages: tuple[int, ...]) -> Entry:
    label = f"ResiDual heads {name_of(stages)}"
    return Entry(heads_key(stages), label, "residual", ResiDual("head", stages))


def _network(stages: tuple[int, ...]) -> Entry:
    label = f"network heads {name_of(stages)}"
    method = ResiDual(stages=stages, path="network")
    return Entry(f"network-{heads_key(stages)}", label, "network", method)


REFERENCE = "zero-shot"
MAIN_KEY = "residual"
"""Gains as they are fitted by default."""
ALL_MOVE = ResiDual(share=1.0, agreement=0.0)
"""The best that is known within the bounds, however many units and whatever other clips say."""
ALL_HEADS = replace(ALL_MOVE, level="head")
WITHIN_CLASSES = ResiDual(whiten="within", components=Components(k=96), share=0.36)
"""Reaches further for the same harm, and takes three times as long."""
ALL_WITHIN_CLASSES = replace(WITHIN_CLASSES, share=1.0, agreement=0.0)
MEAN_DROPPED, MEAN_FIXED = ResiDual(keep_mean=False), ResiDual("head", mean_gains=False)
FREE_SHUFFLED = Shuffled(ResiDual(unbounded=True))
FREE_ROTATED = ResiDual(axes="rotated", unbounded=True)
FREE_COARSE = ResiDual(components=COARSE, unbounded=True)
LATE_ROTATED = ResiDual(stages=(2, 3), axes="rotated", path="network")
LATE_COARSE = ResiDual(stages=(2, 3), components=COARSE, path="network")
PAOLINI = ResiDual("stage", (0,), path="network")
PAOLINI_DROPPED = replace(PAOLINI, keep_mean=False)
DROPPED_LABEL = "network stage 0, mean dropped (Paolini)"
NETWORK_ATTENTION = ResiDual("attention", path="network")
ENTRIES: tuple[Entry, ...] = (
    Entry(REFERENCE, "zero-shot", "reference", ZeroShot()),
    Entry("prompt-ensemble", "zero-shot, prompt ensemble", "reference", PromptEnsemble()),
    Entry(MAIN_KEY, "ResiDual", "residual", ResiDual()),
    Entry("residual-all", "ResiDual, all may move", "residual", ALL_MOVE),
    Entry("residual-within", "ResiDual, whitened within classes", "residual", WITHIN_CLASSES),
    Entry("residual-within-all", "ResiDual, within, all may move", "residual", ALL_WITHIN_CLASSES),
    *map(_heads, STAGE_SETS),
    Entry("heads-all", "ResiDual heads, all may move", "residual", ALL_HEADS),
    Entry("pca", "ResiDual, principal axes", "residual", ResiDual(axes="pca")),
    Entry("unbounded", "ResiDual heads, unbounded", "residual", ResiDual(unbounded=True)),
    Entry("attention", "ResiDual block attention", "residual", ResiDual("attention")),
    Entry("stages", "ResiDual stages", "residual", ResiDual("stage")),
    Entry("mlps", "ResiDual MLPs", "residual", ResiDual("mlp")),
    Entry("heads-evr", "ResiDual heads, EVR 0.9", "residual", ResiDual("head", components=EVR)),
    Entry("heads-mean-dropped", "ResiDual heads, mean dropped", "residual", MEAN_DROPPED),
    Entry("heads-mean-fixed", "ResiDual heads, mean fixed", "residual", MEAN_FIXED),
    Entry("heads-closed-form", "ResiDual heads, closed form", "residual", ClosedForm()),
    Entry("coarse", "coarse, one gain a unit", "control", ResiDual(components=COARSE)),
    Entry("rotated", "rotated axes", "control", ResiDual(axes="rotated")),
    Entry("random", "random axes", "control", ResiDual(axes="random")),
    Entry("shuffled", "labels shuffled by group", "control", Shuffled()),
    Entry("unbounded-shuffled", "labels shuffled by group, unbounded", "control", FREE_SHUFFLED),
    Entry("unbounded-rotated", "rotated axes, unbounded", "control", FREE_ROTATED),
    Entry("unbounded-coarse", "coarse, unbounded", "control", FREE_COARSE),
    Entry("latent-gains", "latent-PCA gains", "control", ResiDual("output")),
    *(Entry(f"rule-{name}", f"rule: {name}", "rule", Rule(name)) for name in STRATEGIES),
    Entry("output-gains", "output-PCA gains", "control", OutputGains()),
    Entry("all-but-the-top", "all but the top", "baseline", AllButTheTop()),
    Entry("whitening", "whitening", "baseline", Whitening()),
    Entry("ridge", "ridge to texts", "baseline", Ridge()),
    Entry("linear-probe-joint", "linear probe, joint", "baseline", LinearProbe("joint")),
    Entry("linear-probe-latent", "linear probe, latent", "baseline", LinearProbe("latent")),
    # what runs the encoder, cheapest first
    *map(_network, sorted(STAGE_SETS, key=lambda stages: -min(stages))),
    Entry("network-rotated", "network heads {2,3}, rotated axes", "control", LATE_ROTATED),
    Entry("network-coarse", "network coarse {2,3}", "control", LATE_COARSE),
    Entry("network-stage-0", "network stage 0 (Paolini)", "network", PAOLINI),
    Entry("network-stage-0-mean-dropped", DROPPED_LABEL, "network", PAOLINI_DROPPED),
    Entry("network-attention", "network block attention", "network", NETWORK_ATTENTION),
    Entry("lora", "LoRA, same budget", "baseline", LoRA()),
    Entry("lora-8", "LoRA, 8 × the budget", "baseline", LoRA(times=8)),
    Entry("bitfit", "BitFit, biases only", "baseline", BitFit()),
    Entry("head-tuning", "joint head tuned", "baseline", HeadTuning()),
    Entry("fine-tuning", "full fine-tuning", "baseline", FineTuning()),
)


def kept_entries(runs: Sequence[str], max_loss: float | None) -> list[Entry]:
    """Methods that hold the answers of reference runs in place."""
    keep = tuple(runs)
    free = ResiDual(keep=keep, max_loss=max_loss)
    bounded = replace(free, bounds=(0.0, 4.0))
    principal = replace(free, axes="pca")
    return [
        Entry("kept", "ResiDual heads, references kept", "residual", free),
        Entry("kept-bounded", "the same, bounded to [0, 4]", "residual", bounded),
        Entry("kept-pca", "the same, unbounded on principal axes", "residual", principal),
    ]


def offered(problem: Problem) -> list[Entry]:
    """The methods that a problem has everything for."""
    there = [entry for entry in ENTRIES if entry.method.offered(problem)]
    if not problem.by_centroids:
        return there
    label = "nearest class centroid"
    return [replace(e, label=label) if e.key == REFERENCE else e for e in there]


MAIN = (
    "prompt-ensemble", "heads-0123", "heads-all", "pca", "coarse", "rotated", "random", "shuffled",
    "rule-*", "output-gains", "all-but-the-top", "whitening", "ridge", "linear-probe-*",
)  # fmt: skip
"""Besides ResiDual itself: what its bound, its axes and its labels are worth, and what costs
little. Without bounds, of all units, and of other units and sets of stages, gains take most of the
time."""


def main_entries(problem: Problem, among: Sequence[Entry]) -> list[Entry]:
    """Those of the main table: what was asked for by keeping references or running the encoder is
    a part of it."""
    known = {entry.key for entry in ENTRIES}
    keys = (MAIN_KEY, *MAIN)
    wanted = find_entries(keys, among, skip_missing=True)
    return [e for e in among if e in wanted or e.method.runs_encoder or e.key not in known]


CAPTIONED = (ZeroShot, ResiDual, OutputGains, LoRA, BitFit, HeadTuning, FineTuning)
"""Methods that learn from what is right for a clip, whether it has a class or not."""


def offered_for_captions(problem: Problem) -> list[Entry]:
    """The methods that need no class, as far as a problem has everything for them."""
    return [entry for entry in offered(problem) if isinstance(entry.method, CAPTIONED)]


def find_entries(
    keys: Sequence[str], among: Sequence[Entry], *, skip_missing: bool = False
) -> list[Entry]:
    """The entries with these keys (`*` stands for anything), and always the reference.

    A key of a method that the problem has nothing for is an error, or with `skip_missing` passed
    over; a key that no method has is always an error.
    """
    for key in keys:
        if any(fnmatchcase(entry.key, key) for entry in among):
            continue
        if any(fnmatchcase(entry.key, key) for entry in ENTRIES):
            if skip_missing:
                continue
            raise InputError(
                f"method '{key}' needs what is not here: the direct path (extract with --capture "
                "…,direct), other stages, the encoder (--network) or a prompt ensemble (--ensemble)"
            )
        known = ", ".join(entry.key for entry in ENTRIES)
        raise InputError(f"there is no method '{key}'; methods: {known}")
    return [
        entry
        for entry in among
        if entry.key == REFERENCE or any(fnmatchcase(entry.key, key) for key in keys)
    ]
