"""A run as large as real ones, without real weights: for benches of what is made from runs.

The encoder has the heads and widths of the smallest HTS-AT in use (184 heads of 24, a latent of
768) with random weights, on a quarter of its time–frequency grid; texts have fixed random vectors.
Sizes of what is kept and shown go by heads, widths and clips, so they are those of a real run.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

from residual_audio.analysis.analysis import Options, analyse
from residual_audio.audio.frontend import FrontEndSpec, LogMel
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import MLP
from residual_audio.pipeline import work
from residual_audio.pipeline.run_settings import RunSettings
from residual_audio.pipeline.steps import Done, Steps, contents
from residual_audio.pipeline.workshop import Workshop
from residual_audio.progress import SILENT, Progress
from residual_audio.report.write import write_analysis

WIDTH = 512
SPEC = FrontEndSpec(
    sample_rate_hz=8000, n_samples=16_000, n_fft=512, hop_length=160, n_mels=32, f_min_hz=50,
    f_max_hz=4000,
)  # fmt: skip
CONFIG = HTSATConfig(
    embed_dim=96, depths=(2, 2, 6, 2), n_heads=(4, 8, 16, 32), window=8, spec_size=128, n_mels=32
)


class FixedTexts(nn.Module):
    """A text side that gives every text its own random vector."""

    kind = "fixed"
    config: dict[str, str] = {}  # noqa: RUF012

    def forward(self, texts: list[str]) -> Tensor:
        seeds = [int.from_bytes(hashlib.sha256(t.encode()).digest()[:6], "big") for t in texts]
        draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        return torch.stack([torch.randn(WIDTH, generator=draw) for draw in draws])


def wide_model() -> AudioTextModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = HTSAT(CONFIG)
        head = MLP(CONFIG.latent, WIDTH, WIDTH)
    return AudioTextModel(
        name="htsat-tiny-sized",
        family="bench",
        front_end=LogMel(SPEC),
        encoder=encoder,
        head=head,
        text=FixedTexts(),
        logit_scale=20.0,
        sha256="1" * 64,
    )


def _analyse(at: Workshop) -> Done:
    """What the map shows by itself: dimensions and classes of every head."""
    options = Options(parts=frozenset({"separability"}), umap=False)
    return Done(write_analysis(analyse(at.store, options, at.progress), at.out), "heads")


def make_large_run(out: Path, n_clips: int, progress: Progress = SILENT) -> Path:
    """Extracted, analysed, heard and shown in an atlas; goes on where it was stopped."""
    made = {"n_clips": n_clips, "duration_s": 2.0}
    settings = RunSettings("nano", "synthetic", out, data_options=made, quick=True, n_exact=0)
    at = Workshop(settings, progress)
    vars(at)["model"] = wide_model()
    work.extract_store(at)
    steps = Steps(out, progress)
    ground = contents(out / "store", "manifest.json")
    for name, step in (
        ("analyse", _analyse),
        ("listen", work.listen_to_heads),
        ("atlas", work.write_head_atlas),
    ):
        steps.do(name, ground, lambda step=step: step(at))  # type: ignore[misc]
    return out
