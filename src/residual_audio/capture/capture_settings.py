"""What to capture, and which clips the declared samples take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from residual_audio.errors import InputError

KINDS = ("embedding", "heads", "blocks", "stages", "direct", "moments", "attention", "tokens")
"""Everything that can be captured, in one pass and in any combination; `embedding` always is."""


@dataclass(frozen=True)
class CaptureSettings:
    """What a run captures. The seed decides which clips are sampled, and nothing else."""

    kinds: tuple[str, ...] = ("embedding", "heads")
    seed: int = 0
    n_maps: int = 128
    """Window maps kept for each attention site; fewer where the windows are large (`map_bytes`)."""
    map_bytes: int = 200_000_000
    """Upper limit of all window maps of a store together."""
    n_token_clips: int = 16
    """Clips whose head outputs are kept token by token."""
    token_grid: tuple[int, int] = (64, 8)
    """Time × frequency steps that those are averaged down to where the grid is finer."""

    @classmethod
    def of(cls, kinds: Iterable[str] | str, **settings: Any) -> CaptureSettings:
        """From names in any order, as a list or as `heads,direct`; `all` is everything."""
        names = kinds.split(",") if isinstance(kinds, str) else list(kinds)
        wanted = {name.strip() for name in names if name.strip()}
        if "all" in wanted:
            wanted = set(KINDS)
        unknown = sorted(wanted - set(KINDS))
        if unknown:
            raise InputError(
                f"cannot capture {', '.join(map(repr, unknown))}: choose among {', '.join(KINDS)}"
            )
        wanted.add("embedding")
        return cls(kinds=tuple(name for name in KINDS if name in wanted), **settings)

    def __post_init__(self) -> None:
        for name in ("n_maps", "n_token_clips"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")

    def to_dict(self) -> dict[str, object]:
        """Only what matters for the chosen kinds, so that an unused option is no change."""
        values = asdict(self)
        values["kinds"] = list(self.kinds)
        values["token_grid"] = list(self.token_grid)
        if "attention" not in self.kinds:
            del values["n_maps"], values["map_bytes"]
        if "tokens" not in self.kinds:
            del values["n_token_clips"], values["token_grid"]
        return values


@dataclass(frozen=True)
class SamplePlan:
    """Which clips (by place in the run) and windows are sampled, whatever the batch size."""

    n_clips: int
    settings: CaptureSettings
    map_shapes: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """Head, query and key counts of each site's window maps. Encoders that read clips of any
    length give maps of other sizes too: those are not sampled, an array has one shape."""

    def _clips(self, wanted: int, stream: int) -> frozenset[int]:
        draw = np.random.default_rng([self.settings.seed, stream])
        return frozenset(draw.permutation(self.n_clips)[:wanted].tolist())

    @cached_property
    def token_clips(self) -> frozenset[int]:
        return self._clips(self.settings.n_token_clips, 1)

    @cached_property
    def map_clips(self) -> frozenset[int]:
        return self._clips(self.settings.n_maps, 2)

    def map_windows(self, stage: int, clip: int, n_windows: int) -> list[int]:
        """Windows of one sampled clip: several where there are fewer clips than maps wanted."""
        each = -(-self.settings.n_maps // max(1, len(self.map_clips)))
        draw = np.random.default_rng([self.settings.seed, 3, stage, clip])
        return sorted(draw.permutation(n_windows)[:each].tolist())
