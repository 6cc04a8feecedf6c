"""The share of a gap: with an interval, and none where there is no gap."""

import math

import numpy as np

from residual_audio.adaptation.verdicts import gap_closed


def hits(rng: np.random.Generator, n: int, base: float, method: float, probe: float):
    groups = [str(i) for i in range(n)]
    zero = rng.random(n) < base
    return (
        (rng.random(n) < method).astype(float) - zero,
        (rng.random(n) < probe).astype(float) - zero,
        groups,
    )


def test_interval_of_a_share_covers():
    rng, covered, known = np.random.default_rng(0), 0, 0
    for _ in range(60):
        value, low, high = gap_closed(*hits(rng, 200, 0.3, 0.5, 0.7))
        if math.isnan(value):
            continue
        known += 1
        assert low <= value <= high
        covered += low <= 0.5 <= high
    assert known > 55
    assert covered / known >= 0.88


def test_no_share_of_a_gap_that_is_not_clear():
    rng, given = np.random.default_rng(1), 0
    for _ in range(60):
        given += not math.isnan(gap_closed(*hits(rng, 100, 0.5, 0.55, 0.5))[0])
    assert given / 60 <= 0.08  # the level of the gap's own interval, one side
    assert all(math.isnan(v) for v in gap_closed(np.ones(3), None, ["a", "b", "c"]))
