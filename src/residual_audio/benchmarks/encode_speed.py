"""Speed of encoding with capture against transformers' CLAP, on the same clips in one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from residual_audio.audio.decode import load_audio
from residual_audio.benchmarks.kernel_bound import kernels_alone
from residual_audio.benchmarks.precision_cost import changes, cost_in_use
from residual_audio.capture.capture_settings import CaptureSettings, SamplePlan
from residual_audio.capture.recorder import Recorder
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.hf import load as load_hf
from residual_audio.models.precision import Precision, prepare, products_in
from residual_audio.passes.loop import Hearing, hear
from residual_audio.passes.sources import cut_inputs
from residual_audio.progress import SILENT, Progress

if TYPE_CHECKING:
    from transformers import ClapFeatureExtractor, ClapModel


def bench_encode(
    n_clips: int = 24,
    batch_size: int = 8,
    repeats: int = 7,
    progress: Progress = SILENT,
    precision: Precision = "float32",
) -> dict[str, object]:
    """Seconds a clip, ours and theirs, alternating, best of `repeats`.

    `precision` is that of our products; theirs are float32 in any case. What fewer bits cost is
    measured beside it.
    """
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
        theirs = ClapModel.from_pretrained(folder).eval()  # nosec B615 # a folder just made
        files = _write_clips(Path(folder), n_clips, ours.sample_rate_hz)
        with torch.inference_mode():
            side = _Ours(ours, files, batch_size, precision)
            found = _measure(side, _Theirs(theirs, extractor, side), repeats, progress)
            if precision != "float32":
                found |= side.cost()
    return found if precision == "float32" else found | cost_in_use(precision)


def _random_clap() -> ClapModel:
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


class _Ours:
    """Our encoder with all heads captured."""

    def __init__(
        self, model: AudioTextModel, files: list[Path], batch: int, precision: Precision
    ) -> None:
        self.model, self.files, self.batch = model, files, batch
        self.precision = precision
        self._products = prepare(precision, model.device)  # as a worker does for all its shards
        self.groups = [files[i : i + batch] for i in range(0, len(files), batch)]
        self.waves = [
            np.stack([load_audio(file, model.sample_rate_hz) for file in group])
            for group in self.groups
        ]
        self.features = self.front_end()
        plan = SamplePlan(len(files), CaptureSettings.of("heads,embedding"))
        self.recorder = Recorder(model.encoder, plan)

    def front_end(self) -> list[Tensor]:
        return [self.model.front_end(torch.from_numpy(wave)) for wave in self.waves]

    def forward(self) -> Tensor:
        joint = torch.from_numpy(self._arrays(self.precision)["embedding/joint"])
        return torch.nn.functional.normalize(joint, dim=-1)

    def _arrays(self, precision: Precision) -> dict[str, npt.NDArray[np.floating]]:
        owners = [range(len(group)) for group in self.groups]
        batches = zip(self.features, owners, strict=True)
        kept = self._products if precision == self.precision else None
        with products_in(precision, self.model.device, kept):
            found = self.recorder.stream(batches, lambda features: features, self.model.joint)
            parts = [arrays for _, arrays in found]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def pipeline(self) -> None:
        heard = hear(self.files, cut_inputs(self.model, "first"), Hearing(batch_size=self.batch))
        with products_in(self.precision, self.model.device, self._products):
            for _ in self.recorder.stream(heard, self.model.front_end, self.model.joint):
                pass

    def kernels_alone(self, repeats: int) -> float:
        """Of our own kernels and nothing around them."""
        with products_in(self.precision, self.model.device, self._products):
            return kernels_alone(self.model.encoder, repeats)

    def cost(self) -> dict[str, float]:
        """What fewer bits change at this size."""
        return changes(self._arrays("float32"), self._arrays(self.precision))


class _Theirs:
    """transformers' CLAP as its documentation uses it."""

    def __init__(self, model: ClapModel, extractor: ClapFeatureExtractor, ours: _Ours) -> None:
        self.model, self.extractor = model, extractor
        self.rate_hz = ours.model.sample_rate_hz
        self.groups, self.waves = ours.groups, ours.waves
        self.features = self.front_end()

    def front_end(self) -> list[Tensor]:
        return [self._extract(list(wave)) for wave in self.waves]

    def forward(self) -> Tensor:
        found = [self.model.get_audio_features(input_features=x) for x in self.features]
        return torch.cat([getattr(x, "pooler_output", x) for x in found])

    def pipeline(self) -> None:
        import soundfile

        for group in self.groups:
            clips = [soundfile.read(file, dtype="float32")[0] for file in group]
            self.model.get_audio_features(input_features=self._extract(clips))

    def _extract(self, clips: list[npt.NDArray[np.float32]]) -> Tensor:
        inputs = self.extractor(clips, sampling_rate=self.rate_hz, return_tensors="pt")
        features: Tensor = inputs["input_features"]
        return features


def _measure(ours: _Ours, theirs: _Theirs, repeats: int, progress: Progress) -> dict[str, object]:
    progress.step("measuring", 3 * repeats, "rounds")
    difference = float((ours.forward() - theirs.forward()).abs().max())

    def both(part: str, in_a_row: int = 1) -> tuple[float, float]:
        return _alternate(getattr(ours, part), getattr(theirs, part), repeats, in_a_row, progress)

    pipeline, forward = both("pipeline"), both("forward")
    # a front-end takes milliseconds: often, and in a row, so that caches are warm
    front_end = both("front_end", 6)
    n = len(ours.files)
    kernels = ours.kernels_alone(repeats)
    return {
        "ours_s_per_clip": pipeline[0] / n,
        "hf_s_per_clip": pipeline[1] / n,
        "ratio": pipeline[1] / pipeline[0],
        "forward_ratio": forward[1] / forward[0],
        "front_end_ratio": front_end[1] / front_end[0],
        "ours_forward_s_per_clip": forward[0] / n,
        "ours_front_end_s_per_clip": front_end[0] / n,
        "max_abs_diff": difference,
        "kernels_s_per_clip": kernels,
        "kernels_ratio": pipeline[1] / n / kernels,
        "n_clips": n,
        "batch_size": ours.batch,
        "threads": torch.get_num_threads(),
        "precision": ours.precision,
    }


def _alternate(
    ours: Callable[[], object],
    theirs: Callable[[], object],
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
