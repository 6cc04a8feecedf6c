"""The training loop, the same for every stage: steps, schedule, clipping, average, checkpoints.

Whatever is random in step k is drawn from a generator made from (seed, k), so a resumed run needs
no saved generator state and takes exactly the steps the uninterrupted one would have taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from residual_audio.errors import ModelError
from residual_audio.progress import SILENT, Progress, stopping_when_whole
from residual_audio.training.line_log import LineLog
from residual_audio.training.recipe import Optimisation
from residual_audio.training.training_state import load_checkpoint, save_checkpoint


class Task(Protocol):
    """One stage of training: what is learned, and its loss at a step."""

    identity: dict[str, Any]
    """What must be the same for a run to be continued."""

    @property
    def module(self) -> nn.Module:
        """Everything that is learned."""

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """Loss of this step's batch and its parts."""

    def lr_scale(self, name: str) -> float:
        """Learning rate of a parameter relative to the others; 0 freezes it."""

    look_every: int
    """Steps between looks; 0 for none."""

    def look(self, step: int) -> dict[str, object]:
        """Called with averaged weights in place: what there is to track."""

    def save_weights(self, folder: Path) -> None:
        """Called with averaged weights in place: a loadable model."""


def generator(*key: int) -> torch.Generator:
    """A generator for (seed, step, …)."""
    value = 0x9E3779B97F4A7C15
    for part in key:  # splitmix64, so that neighbouring steps are unrelated
        value = (value ^ (part & 0xFFFFFFFFFFFFFFFF)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return torch.Generator().manual_seed(value >> 1)


def schedule(step: int, settings: Optimisation) -> float:
    """Linear warm-up, then a cosine down to the final share."""
    warm = max(1, round(settings.warmup * settings.steps))
    if step < warm:
        return (step + 1) / warm
    progress = (step - warm) / max(1, settings.steps - warm)
    return settings.final + (1 - settings.final) * (1 + math.cos(math.pi * progress)) / 2


def build_optimisers(task: Task, settings: Optimisation) -> list[torch.optim.Optimizer]:
    """AdamW over everything, or Muon over the inner matrices and AdamW over the rest.

    Weights of one dimension, embeddings and tables are not decayed.
    """
    matrices: dict[float, list[nn.Parameter]] = {}
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in task.module.named_parameters():
        scale = task.lr_scale(name)
        parameter.requires_grad_(scale > 0)
        if scale <= 0:
            continue
        inner = parameter.ndim == 2 and not any(
            part in name for part in ("bias_table", "tokens", "positions")
        )
        if settings.optimiser == "muon" and inner and "head" not in name:
            matrices.setdefault(scale, []).append(parameter)
        else:
            groups.setdefault((scale, inner or parameter.ndim == 4), []).append(parameter)
    found: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(
            [
                {
                    "params": members,
                    "lr": settings.lr * scale,
                    "base_lr": settings.lr * scale,
                    "weight_decay": settings.weight_decay if decayed else 0.0,
                }
                for (scale, decayed), members in groups.items()
            ],
            betas=settings.betas,
        )
    ]
    if matrices:
        found.append(
            torch.optim.Muon(
                [
                    {
                        "params": members,
                        "lr": settings.muon_lr * scale,
                        "base_lr": settings.muon_lr * scale,
                        "weight_decay": settings.weight_decay,
                    }
                    for scale, members in matrices.items()
                ]
            )
        )
    return found


class Average:
    """Exponential moving average of weights; buffers are copied."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.values = {key: value.detach().clone() for key, value in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))  # short memory while all is in motion
        parameters = {name for name, _ in module.named_parameters()}
        for key, value in module.state_dict().items():
            if key in parameters and value.is_floating_point():
                self.values[key].lerp_(value, 1 - decay)
            else:
                self.values[key].copy_(value)

    @contextmanager
    def in_place(self, module: nn.Module) -> Iterator[None]:
        """The module with averaged weights, for as long as the block lasts."""
        own = {key: value.detach().clone() for key, value in module.state_dict().items()}
        module.load_state_dict(self.values)
        module.eval()
        try:
            yield
        finally:
            module.load_state_dict(own)
            module.train()


def autocast(device: torch.device, precision: str) -> torch.autocast:
    enabled = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def train(
    task: Task,
    settings: Optimisation,
    folder: Path,
    device: torch.device,
    progress: Progress = SILENT,
    stop_after: int | None = None,
    board: Callable[[int, dict[str, float]], None] | None = None,
) -> int:
    """Run (or continue) a stage; returns the steps done. `stop_after` ends early, resumable."""
    folder.mkdir(parents=True, exist_ok=True)
    module = task.module.to(device)
    module.train()
    optimisers = build_optimisers(task, settings)
    average = Average(module, settings.ema)
    step = load_checkpoint(folder, module, average.values, optimisers, task.identity)
    log, looks = LineLog(folder / "log.jsonl"), LineLog(folder / "tracking.jsonl")
    log.cut(step)
    looks.cut(step or -1)  # what was seen before the first step is seen again
    marks = _snapshot_steps(settings)
    last = settings.steps if stop_after is None else min(settings.steps, stop_after)

    def look() -> None:
        due = task.look_every and (step % task.look_every == 0 or step == settings.steps)
        if not due and step not in marks:
            return
        with average.in_place(module):
            if due:
                with torch.inference_mode():
                    looks.write({"step": step, **task.look(step)})
            if step in marks:
                task.save_weights(folder / "snapshots" / f"step-{step:06d}")

    if step == 0:
        look()
    begun = time.monotonic()
    progress.step(f"train {folder.name}", settings.steps, "steps")
    progress.advance(step)
    progress.keeps(f"the checkpoint in '{folder}' is kept; the same command goes on from there")
    with stopping_when_whole() as asked:
        while step < last:
            numbers = _take_step(task, settings, optimisers, device, step)
            step += 1
            average.update(module, step)
            log.write({"step": step, **{key: round(v, 6) for key, v in numbers.items()}})
            if board is not None:
                board(step, numbers)
            progress.advance(1, f"loss {numbers['loss']:.4f}")
            look()
            if step % settings.checkpoint_every == 0 or step == last or asked:
                save_checkpoint(folder, step, module, average.values, optimisers, task.identity)
            if asked:
                raise KeyboardInterrupt
    log_time(folder, step, time.monotonic() - begun)
    module.load_state_dict(average.values)
    module.eval()
    return step


def _snapshot_steps(settings: Optimisation) -> set[int]:
    n = settings.snapshots
    return {round(i * settings.steps / n) for i in range(1, n + 1)} if n else set()


def _take_step(
    task: Task,
    settings: Optimisation,
    optimisers: Sequence[torch.optim.Optimizer],
    device: torch.device,
    step: int,
) -> dict[str, float]:
    """One step of all optimisers: the loss, its parts, and how large the gradient was."""
    rate = schedule(step, settings)
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group["base_lr"] * rate
        optimiser.zero_grad(set_to_none=True)
    with autocast(device, settings.precision):
        loss, parts = task.loss(step)
    loss.backward()
    trained = [p for p in task.module.parameters() if p.requires_grad]
    norm = float(nn.utils.clip_grad_norm_(trained, settings.clip))
    value = float(loss.detach())
    if not math.isfinite(value) or not math.isfinite(norm):
        raise ModelError(
            f"the loss is not finite at step {step}: lower the learning rate (lr) and "
            "start again in another folder"
        )
    for optimiser in optimisers:
        optimiser.step()
    return {"loss": value, **parts, "grad_norm": norm, "rate": rate}


def log_time(folder: Path, step: int, seconds: float) -> None:
    """Wall time of each sitting, beside the step it ended at."""
    LineLog(folder / "time.jsonl").write({"step": step, "seconds": round(seconds, 1)})
