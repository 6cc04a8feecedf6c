"""Speed of encoding with capture against transformers' CLAP, on the same clips in one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from residual_audio.audio.decode import load_audio
from residual_audio.capture.recorder import Recorder
from residual_audio.capture.settings import CaptureSettings, SamplePlan
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.hf import load as load_hf
from residual_audio.models.htsat import HTSATConfig
from residual_audio.passes.loop import Hearing, hear
from residual_audio.passes.sources import cut_inputs
from residual_audio.progress import SILENT, Progress


def bench_encode(
    n_clips: int = 24,
    batch_size: int = 8,
    repeats: int = 7,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Seconds a clip, ours and theirs, alternating, best of `repeats`."""
    from transformers import ClapFeatureExtractor, ClapModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        theirs = _random_clap()
        theirs.save_pretrained(folder)
        extractor = ClapFeatureExtractor(
            truncation="rand_trunc", padding="repeatpad", frequency_min=50, frequency_max=14000
        )
        extractor.save_pretrained(folder)
        ours = load_hf(folder)
        theirs = ClapModel.from_pretrained(folder).eval()
        files = _write_clips(Path(folder), n_clips, ours.sample_rate_hz)
        with torch.inference_mode():
            return _measure(ours, theirs, extractor, files, batch_size, repeats, progress)


def _random_clap() -> Any:
    from transformers import ClapConfig, ClapModel

    torch.manual_seed(0)
    # The text side plays no part here: the audio side is the real tiny size, text is minimal.
    model = ClapModel(ClapConfig(text_config={"num_hidden_layers": 1, "vocab_size": 100}))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = 0.05 * noise if parameter.ndim > 1 else 0.5 + 0.1 * noise
    # dB values reach the encoder at the scale it is trained on
    state = model.audio_model.audio_encoder.batch_norm.state_dict()
    state["running_mean"].fill_(-40.0)
    state["running_var"].fill_(400.0)
    return model


def _write_clips(folder: Path, n_clips: int, rate: int) -> list[Path]:
    import soundfile

    rng = np.random.default_rng(0)
    files = []
    for i in range(n_clips):
        time_s = np.arange(10 * rate) / rate
        tone = np.sin(2 * np.pi * rng.uniform(100, 4000) * time_s) * rng.uniform(0.05, 0.5)
        path = folder / f"clip-{i:03d}.wav"
        soundfile.write(path, tone + rng.normal(0, 0.02, tone.shape), rate, subtype="PCM_16")
        files.append(path)
    return files


def _measure(
    ours: AudioTextModel,
    theirs: Any,
    extractor: Any,
    files: list[Path],
    batch: int,
    repeats: int,
    progress: Progress,
) -> dict[str, Any]:
    rate = ours.sample_rate_hz
    groups = [files[i : i + batch] for i in range(0, len(files), batch)]
    waves = [np.stack([load_audio(file, rate) for file in group]) for group in groups]

    def our_front_end() -> list[Any]:
        return [ours.front_end(torch.from_numpy(wave)) for wave in waves]

    def their_front_end() -> list[Any]:
        return [
            extractor(list(wave), sampling_rate=rate, return_tensors="pt")["input_features"]
            for wave in waves
        ]

    owners = [range(len(group)) for group in groups]
    our_features, their_features = our_front_end(), their_front_end()
    recorder = Recorder(ours.encoder, SamplePlan(len(files), CaptureSettings.of("heads,embedding")))

    def our_forward() -> Tensor:
        batches = zip(our_features, owners, strict=True)
        found = recorder.stream(batches, lambda features: features, ours.joint)
        joint = [torch.from_numpy(arrays["embedding/joint"]) for _, arrays in found]
        return torch.nn.functional.normalize(torch.cat(joint), dim=-1)

    def their_forward() -> Tensor:
        found = [theirs.get_audio_features(input_features=x) for x in their_features]
        return torch.cat([getattr(x, "pooler_output", x) for x in found])

    def our_pipeline() -> None:
        heard = hear(files, cut_inputs(ours, "first"), Hearing(batch_size=batch))
        for _ in recorder.stream(heard, ours.front_end, ours.joint):
            pass

    def their_pipeline() -> None:
        import soundfile

        for group in groups:
            clips = [soundfile.read(file, dtype="float32")[0] for file in group]
            inputs = extractor(clips, sampling_rate=rate, return_tensors="pt")
            theirs.get_audio_features(input_features=inputs["input_features"])

    progress.step("measuring", 3 * repeats, "rounds")
    difference = float((our_forward() - their_forward()).abs().max())
    pairs = {
        "pipeline": (our_pipeline, their_pipeline),
        "forward": (our_forward, their_forward),
        "front_end": (our_front_end, their_front_end),
    }
    # a front-end takes milliseconds: often, and in a row, so that caches are warm
    rows = {"front_end": 6}
    seconds = {
        name: _alternate(*pair, repeats, rows.get(name, 1), progress)
        for name, pair in pairs.items()
    }
    n = len(files)
    return {
        "ours_s_per_clip": seconds["pipeline"][0] / n,
        "hf_s_per_clip": seconds["pipeline"][1] / n,
        "ratio": seconds["pipeline"][1] / seconds["pipeline"][0],
        "forward_ratio": seconds["forward"][1] / seconds["forward"][0],
        "front_end_ratio": seconds["front_end"][1] / seconds["front_end"][0],
        "ours_forward_s_per_clip": seconds["forward"][0] / n,
        "ours_front_end_s_per_clip": seconds["front_end"][0] / n,
        "max_abs_diff": difference,
        "gemm_bound_s_per_clip": gemm_bound(batch, repeats),
        "n_clips": n,
        "batch_size": batch,
        "threads": torch.get_num_threads(),
    }


def _alternate(
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    repeats: int,
    in_a_row: int,
    progress: Progress,
) -> tuple[float, float]:
    """Best times of two functions run in turn, so that both see the same machine."""
    ours()
    theirs()
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for i, work in enumerate((ours, theirs)):
            time.sleep(0.1)  # worker threads of the other side spin for a while after their work
            for _ in range(in_a_row):
                start = time.perf_counter()
                work()
                best[i] = min(best[i], time.perf_counter() - start)
        progress.advance()
    return best[0], best[1]


def gemm_bound(batch: int, repeats: int) -> float:
    """Seconds a clip of HTS-AT tiny's matrix products alone: nothing can be faster."""
    config = HTSATConfig()
    shapes: list[tuple[int, int, int, int]] = []  # rows, inner, columns, how often
    for stage, depth in enumerate(config.depths):
        rows, width = batch * config.grid(stage) ** 2, config.width(stage)
        for columns in (3 * width, width, 4 * width):
            shapes.append((rows, width, columns, depth))
        shapes.append((rows, 4 * width, width, depth))
        if stage + 1 < len(config.depths):
            shapes.append((rows // 4, 4 * width, 2 * width, 1))
    total = 0.0
    for rows, inner, columns, times in shapes:
        a, b = torch.randn(rows, inner), torch.randn(inner, columns)
        best = float("inf")
        for _ in range(repeats + 1):
            start = time.perf_counter()
            torch.mm(a, b)
            best = min(best, time.perf_counter() - start)
        total += times * best
    return total / batch
