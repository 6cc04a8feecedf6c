"""When a token is: the seconds of a clip that each token of a stage stands for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.encoder import Encoder

Range = tuple[float, float]
"""From and to, in seconds; the end is not in it."""


def time_steps(encoder: Encoder, stage: int, n_tokens: int) -> tuple[Tensor, int]:
    """[token] time step of each token, −1 for one without a time (CLS), and how many there are."""
    step = encoder.time_frequency(stage, n_tokens)[:, 0]
    return step, int(step.max()) + 1


def step_centres(n_steps: int, duration_s: float) -> Tensor:
    """[step] the middle of each time step, in seconds."""
    return (torch.arange(n_steps, dtype=torch.float64) + 0.5) * duration_s / n_steps


def tokens_between(
    encoder: Encoder, stage: int, n_tokens: int, duration_s: float, between: Range
) -> Tensor:
    """[token] true where the middle of a token lies in the range; tokens without a time do not."""
    step, n_steps = time_steps(encoder, stage, n_tokens)
    middle = step_centres(n_steps, duration_s)[step.clamp(min=0)]
    found = (step >= 0) & (middle >= between[0]) & (middle < between[1])
    if not bool(found.any()):
        raise InputError(
            f"no token of stage {stage} between {between[0]:g} and {between[1]:g} s: the clip has "
            f"{duration_s:g} s, and a token of this stage stands for {duration_s / n_steps:.3g} s"
        )
    return found


def check_range(between: Sequence[float]) -> Range:
    """Two numbers, the first smaller."""
    if len(between) != 2 or not 0 <= between[0] < between[1]:
        raise InputError(f"{tuple(between)} is no range of seconds: give (from, to), from < to")
    return float(between[0]), float(between[1])
