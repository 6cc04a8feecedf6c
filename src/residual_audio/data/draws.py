"""Random numbers that are the same on every platform and with every version of numpy.

Only the raw words of the counter-based generator Philox are used, which numpy keeps stable; its
distributions (`normal`, `choice` …) may change between versions and call the platform's libm.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
T = TypeVar("T")


class Draws:
    """An endless stream of numbers named by a key, such as (seed, "clip", 12)."""

    def __init__(self, *key: int | str) -> None:
        name = "/".join(str(part) for part in key)
        digest = blake2b(name.encode(), digest_size=16).digest()
        self._bits = np.random.Philox(key=np.frombuffer(digest, dtype="<u8").astype(np.uint64))

    def unit(self) -> float:
        """Uniform in [0, 1)."""
        return (int(self._bits.random_raw()) >> 11) * 2.0**-53

    def units(self, n: int) -> Array:
        """n numbers, uniform in [0, 1)."""
        return np.asarray((self._bits.random_raw(n) >> np.uint64(11)) * 2.0**-53, np.float64)

    def between(self, low: float, high: float) -> float:
        """Uniform in [low, high)."""
        return low + (high - low) * self.unit()

    def ratio(self, spread: float) -> float:
        """A factor between 1/spread and spread, uniform in its logarithm."""
        return float(spread ** self.between(-1.0, 1.0))

    def count(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self.unit() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        return self.unit() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.unit() * len(options))]

    def some(self, options: Sequence[T], n: int) -> list[T]:
        """n different options, in random order (all of them when there are fewer)."""
        order = np.argsort(self.units(len(options)), kind="stable")
        return [options[i] for i in order[:n]]

    def noise(self, n: int) -> Array:
        """White noise, uniform in [-1, 1): 16 random bits a sample are plenty for sound."""
        words = self._bits.random_raw(-(-n // 4)).astype("<u8")
        return words.view("<i2")[:n] * (1.0 / 32768.0)
