"""TensorBoard, where its package is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from residual_audio.errors import MissingExtraError


def open_board(folder: Path) -> Callable[[int, dict[str, float]], None]:
    """A function that writes the numbers of a step."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "track", "--tensorboard") from error
    writer = SummaryWriter(str(folder))

    def write(step: int, numbers: dict[str, float]) -> None:
        for key, value in numbers.items():
            writer.add_scalar(key, value, step)

    return write
