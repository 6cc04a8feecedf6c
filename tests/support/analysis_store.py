"""A small store in memory, with the names and shapes of the real one and known contents."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from residual_audio.direct.joint_arrays import joint_of
from residual_audio.errors import StoreError
from residual_audio.metrics.moments import Moments
from residual_audio.store.clips import ClipTable
from residual_audio.types import Site

SITES = tuple(
    Site(stage, block, "attention", n_heads, 6, 6 * n_heads)
    for stage, n_heads in ((0, 2), (1, 4))
    for block in (0, 1)
)
CLASSES = ("bell", "dog", "rain")


def _objects(values: list) -> np.ndarray:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


@dataclass
class FakeStore:
    """90 clips of three classes; stage 0 is nearly one-dimensional, stage 1 is spread out."""

    n_clips: int = 90
    seed: int = 0
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    operators: dict[str, np.ndarray] = field(default_factory=dict)
    has_text: bool = True

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        n = self.n_clips
        codes = np.arange(n) % 3
        columns = {
            "id": _objects([f"clip-{i}.wav" for i in range(n)]),
            "label": _objects([CLASSES[c] for c in codes]),
            "group": _objects([f"g{i // 3}" for i in range(n)]),
            "fold": _objects([None] * n),
        }
        self.clips = ClipTable(columns)
        for site in SITES:
            h, d = site.n_heads, site.d_head
            falling = np.exp(-np.arange(d) * (2.0 if site.stage == 0 else 0.2))
            tokens = rng.normal(size=(n, h, 8, 2, d)) * falling
            tokens += (rng.normal(size=(3, d)) * falling * (1 + site.stage))[codes][
                :, None, None, None
            ]
            tokens = tokens + rng.normal(size=d)
            pooled = tokens.mean(axis=(2, 3))
            self.arrays[f"heads/{site}"] = pooled.astype(np.float32)
            self.arrays[f"direct/{site}"] = pooled
            self.operators[f"w_out/{site}"] = rng.normal(size=(h, d, site.width))
            moments = Moments.of(np.moveaxis(tokens, 1, 0).reshape(h, -1, d))
            self.arrays[f"moments/{site}/mean"] = moments.mean
            self._moments = {**getattr(self, "_moments", {}), str(site): moments}
            self.arrays[f"tokens/{site}/split"] = _split(tokens)
            self.arrays[f"tokens/{site}/sample"] = tokens[:5].astype(np.float16)
            maps = np.exp(rng.normal(size=(40, h, 4, 4)))
            maps /= maps.sum(-1, keepdims=True)
            self.arrays[f"attention/{site}/maps"] = maps.astype(np.float16)
            self.arrays[f"attention/{site}/maps_at"] = np.stack(
                [np.arange(40), np.zeros(40, int)], 1
            )
            self.arrays[f"attention/{site}/entropy"] = rng.uniform(0, np.log(4), size=(n, h))
            self.arrays[f"attention/{site}/distance"] = rng.uniform(0, 2, size=(n, h))
            for part in ("stream", "attention", "mlp"):
                name = f"blocks/s{site.stage}.b{site.block}/{part}"
                self.arrays[name] = rng.normal(size=(n, site.width)).astype(np.float32)
        for stage, width in ((0, 12), (1, 24)):
            self.arrays[f"stages/s{stage}"] = rng.normal(size=(n, width)).astype(np.float32)
        self.arrays["embedding/latent"] = rng.normal(size=(n, 24))
        self.operators |= {
            "joint/linear1.weight": np.eye(24),
            "joint/linear1.bias": np.zeros(24),
            "joint/linear2.weight": rng.normal(size=(24, 16)).T,
            "joint/linear2.bias": np.zeros(16),
        }
        self.joint = {"kind": "mlp", "norm_eps": {}, "config": {}}
        self.arrays["embedding/joint"] = joint_of(self)(self.arrays["embedding/latent"])
        for stage, width in ((0, 12), (1, 24)):
            self.arrays[f"direct/weights/s{stage}"] = np.ones((n, 1))
            self.operators[f"direct/step/s{stage}"] = rng.normal(size=(1, width, 24))
        self.words = [f"sound {i}" for i in range(40)]
        self.operators["text"] = rng.normal(size=(40, 16))

    @property
    def n_all(self) -> int:
        return self.n_clips

    def clip_moments(self, site: Site) -> None:
        return None

    @property
    def sites(self) -> tuple[Site, ...]:
        return SITES

    @property
    def attention_sites(self) -> tuple[Site, ...]:
        return SITES

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.arrays)

    def has(self, name: str) -> bool:
        return name in self.arrays

    def array(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise StoreError(f"no '{name}'")
        return self.arrays[name]

    def operator(self, name: str) -> np.ndarray:
        return self.operators[name]

    def heads(self, site: Site) -> np.ndarray:
        return self.array(f"heads/{site}")

    def w_out(self, site: Site) -> np.ndarray:
        return self.operators[f"w_out/{site}"]

    def latent(self) -> np.ndarray:
        return self.array("embedding/latent")

    def embedding(self, unit: bool = True) -> np.ndarray:
        joint = self.array("embedding/joint")
        return joint / np.linalg.norm(joint, axis=1, keepdims=True) if unit else joint

    def moments(self, site: Site) -> Moments:
        return self._moments[str(site)]

    def texts(self) -> tuple[list[str], np.ndarray | None]:
        rows = self.operators["text"]
        return self.words, rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _split(tokens: np.ndarray) -> np.ndarray:
    mean = tokens.mean(axis=(2, 3), keepdims=True)
    time = tokens.mean(axis=3, keepdims=True) - mean
    frequency = tokens.mean(axis=2, keepdims=True) - mean
    rest = tokens - mean - time - frequency
    parts = [(p**2).sum(-1).mean(axis=(2, 3)) for p in (time, frequency, rest)]
    return np.stack(parts, axis=-1).astype(np.float32)
