"""How an extraction is done: every setting, with what it is when nobody says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from residual_audio.audio.windows import LongPolicy
from residual_audio.capture.capture_settings import CaptureSettings
from residual_audio.engine import Where
from residual_audio.errors import InputError
from residual_audio.models.precision import Precision
from residual_audio.passes.loop import Hearing, heard_as


@dataclass(frozen=True)
class ExtractSettings:
    """What `extract` takes by keyword."""

    root: str | Path | None = None
    """Where the data set lies, if it is given by name."""
    capture: Iterable[str] | str = ("heads",)
    """What to keep of each pass, as a list or as `heads,direct`; `all` is everything."""
    limit: int | None = None
    """At most so many clips, spread over classes."""
    batch_size: int = 8
    shard_size: int = 128
    """Clips of a shard: what is kept when the work is stopped goes by shards."""
    device: str = "auto"
    precision: Precision = "float32"
    """Of the encoder's products; `bf16` and `fp16` are refused where they would be slower."""
    long: LongPolicy = "first"
    """What is heard of a clip longer than the model's window; `tile` gives every window a row."""
    hop_s: float | None = None
    """`tile`: seconds from the beginning of a window to that of the next; None: its length."""
    seed: int = 0
    """Decides which clips the declared samples take, and nothing else."""
    n_threads: int = 2
    engine: str = "local"
    processes: int = 1
    ray_address: str | None = None
    cpus_each: float | None = None
    """Cores of a Ray worker."""
    gpus_each: float | None = None
    """GPUs of a Ray worker, also a fraction; None for one where the cluster has any."""
    overwrite: bool = False
    sample: Mapping[str, Any] = field(default_factory=dict)
    """Sizes of the declared samples: `n_maps`, `n_token_clips`, `token_grid`."""

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.shard_size < 1:
            raise InputError(
                f"batch size {self.batch_size} and shard size {self.shard_size} must be positive"
            )
        if self.hop_s is not None and self.long != "tile":
            raise InputError("a hop is the step between windows: it goes with --long tile")

    @property
    def hearing(self) -> Hearing:
        return Hearing(heard_as(self.long), self.batch_size, self.n_threads)

    @property
    def captured(self) -> CaptureSettings:
        return CaptureSettings.of(self.capture, seed=self.seed, **self.sample)

    @property
    def where(self) -> Where:
        return Where(self.engine, self.processes, self.ray_address, self.cpus_each, self.gpus_each)


class ExtractOptions(TypedDict, total=False):
    """The fields of `ExtractSettings`, as keywords."""

    root: str | Path | None
    capture: Iterable[str] | str
    limit: int | None
    batch_size: int
    shard_size: int
    device: str
    precision: Precision
    long: LongPolicy
    hop_s: float | None
    seed: int
    n_threads: int
    engine: str
    processes: int
    ray_address: str | None
    cpus_each: float | None
    gpus_each: float | None
    overwrite: bool
    sample: Mapping[str, Any]
