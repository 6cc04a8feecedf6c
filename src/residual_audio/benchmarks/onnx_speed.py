"""The audio tower in onnxruntime against our own pass: the same clips on one core, one run.

Seconds are those that the core worked, so that a busy machine matters little.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import torch

from residual_audio.errors import MissingExtraError
from residual_audio.models import onnx_tower
from residual_audio.models.registry import load_model
from residual_audio.progress import SILENT, Progress


class OnnxSpeed(TypedDict):
    """Seconds a clip on one core, best of several; log-mels are ready in both."""

    model: str
    batch_size: int
    repeats: int
    ours_s: float
    onnx_s: float
    ratio: float
    """Of onnxruntime's seconds to ours."""
    largest_difference: float


def bench_onnx(
    name: str = "nano", batch_size: int = 8, repeats: int = 7, progress: Progress = SILENT
) -> OnnxSpeed:
    """Encoder and joint head alone, on a batch of noise."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", "Timing ONNX") from error
    model = load_model(name, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "tower"
        difference = onnx_tower.save(model, out)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            str(out / onnx_tower.FILE), options, providers=["CPUExecutionProvider"]
        )
    draw = torch.Generator().manual_seed(0)
    features = model.features(0.1 * torch.randn(batch_size, model.spec.n_samples, generator=draw))
    given = {"features": features.numpy()}  # type: ignore[union-attr]
    progress.step("onnxruntime and our own pass", 2 * repeats, "passes")

    @torch.inference_mode()
    def ours() -> None:
        model.joint(model.encode(features))

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    # one after the other, so that a busy moment hits both
    pairs = [(_seconds(ours), _seconds(lambda: session.run(None, given))) for _ in range(repeats)]
    torch.set_num_threads(before)
    progress.advance(2 * repeats)
    first, second = (min(times) / batch_size for times in zip(*pairs, strict=True))
    return {
        "model": model.name,
        "batch_size": batch_size,
        "repeats": repeats,
        "ours_s": first,
        "onnx_s": second,
        "ratio": second / first,
        "largest_difference": difference,
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start
