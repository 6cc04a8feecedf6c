"""All campaigns, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from residual_audio.benchmarks.faults.bad_sound import mutate_sound
from residual_audio.benchmarks.faults.crashes import crash_everywhere
from residual_audio.benchmarks.faults.damage import damage_files
from residual_audio.benchmarks.faults.limits import within_limits
from residual_audio.benchmarks.faults.long_works import LONG_WORKS
from residual_audio.benchmarks.faults.outcome import Campaign
from residual_audio.benchmarks.faults.writers import at_once
from residual_audio.benchmarks.kill import bench_kill
from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress

MOMENTS_OF_LONG_WORK = 12
"""A whole run writes a thousand times and takes a minute: so many moments of it."""
Run = Callable[[bool, int, Progress], list[Campaign]]
"""Quick or whole, seed, progress."""


def _crash(quick: bool, seed: int, progress: Progress) -> list[Campaign]:
    if quick:
        return crash_everywhere(8, progress)
    return [
        *crash_everywhere(None, progress),
        *crash_everywhere(MOMENTS_OF_LONG_WORK, progress, LONG_WORKS),
    ]


def _damage(quick: bool, seed: int, progress: Progress) -> list[Campaign]:
    flips, cuts = (40, 10) if quick else (300, 50)
    return damage_files(flips, cuts, seed, progress)


def _sound(quick: bool, seed: int, progress: Progress) -> list[Campaign]:
    return mutate_sound(200 if quick else 2000, seed, progress)


def _kill(quick: bool, seed: int, progress: Progress) -> list[Campaign]:
    campaign = Campaign("kill", "killed at random, an extraction goes on to the identical store")
    found = bench_kill(5 if quick else 100, seed, progress)
    for _ in range(found.kills):
        campaign.count(None if found.whole else "; ".join(found.problems) or "the store differs")
    return [campaign]


def _limits(quick: bool, seed: int, progress: Progress) -> list[Campaign]:
    return within_limits(3 if quick else None, progress)


def _writers(quick: bool, seed: int, progress: Progress) -> list[Campaign]:
    return at_once(1 if quick else 16, seed, progress)


CAMPAIGNS: dict[str, Run] = {
    "crash": _crash,
    "damage": _damage,
    "sound": _sound,
    "kill": _kill,
    "limits": _limits,
    "writers": _writers,
}


def run_campaigns(
    names: Iterable[str] = (), quick: bool = False, seed: int = 0, progress: Progress = SILENT
) -> list[Campaign]:
    """Those named, or all."""
    chosen = list(names) or list(CAMPAIGNS)
    unknown = [name for name in chosen if name not in CAMPAIGNS]
    if unknown:
        raise InputError(f"no campaign '{unknown[0]}'; there are: {', '.join(CAMPAIGNS)}")
    return [found for name in chosen for found in CAMPAIGNS[name](quick, seed, progress)]
