"""All campaigns, by name: `crash:extract`, or all of `crash`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from residual_audio.benchmarks.faults.bad_sound import mutate_sound
from residual_audio.benchmarks.faults.crashes import crash_everywhere
from residual_audio.benchmarks.faults.damage import CUTS, FLIPS, damage_files
from residual_audio.benchmarks.faults.full_disks import full_disk
from residual_audio.benchmarks.faults.hostile_models import hostile_models
from residual_audio.benchmarks.faults.hostile_pages import hostile_pages
from residual_audio.benchmarks.faults.hostile_text import hostile_text
from residual_audio.benchmarks.faults.kills import kill_at_random
from residual_audio.benchmarks.faults.limits import within_limits
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.faults.read_back import KINDS, FileKind
from residual_audio.benchmarks.faults.same_answer import nothing_left, same_answer
from residual_audio.benchmarks.faults.works import WORKS, Work
from residual_audio.benchmarks.faults.writers import at_once
from residual_audio.errors import InputError

Run = Callable[[CampaignSettings], list[Campaign]]
FEW_KILLS = {"one process": 4, "SIGTERM": 2}


def _crash(work: Work, asked: CampaignSettings) -> list[Campaign]:
    return crash_everywhere(asked, [work], 3 if asked.quick else None)


def _full(work: Work, asked: CampaignSettings) -> list[Campaign]:
    return full_disk(work, asked, 3 if asked.quick else None)


def _damage(kind: FileKind, asked: CampaignSettings) -> list[Campaign]:
    flips, cuts = (24, 6) if asked.quick else (FLIPS, CUTS)
    return damage_files(asked, flips, cuts, [kind])


def _slug(name: str) -> str:
    return name.replace(" ", "-")


CAMPAIGNS: dict[str, Run] = {
    **{f"crash:{_slug(work.name)}": partial(_crash, work) for work in WORKS},
    **{f"full-disk:{_slug(work.name)}": partial(_full, work) for work in WORKS if not work.marks},
    **{f"damage:{_slug(kind.name)}": partial(_damage, kind) for kind in KINDS},
    "kill": lambda asked: kill_at_random(asked, FEW_KILLS if asked.quick else None),
    "limits": lambda asked: within_limits(asked, 2 if asked.quick else None),
    "writers": lambda asked: at_once(asked, *((1,) if asked.quick else ())),
    "sound": lambda asked: mutate_sound(asked, *((150,) if asked.quick else ())),
    "models": lambda asked: hostile_models(asked, 4 if asked.quick else None),
    "text": lambda asked: hostile_text(asked, 3 if asked.quick else None),
    "pages": lambda asked: hostile_pages(asked, *((10,) if asked.quick else ())),
    "same-answer": same_answer,
    "nothing-left": lambda asked: nothing_left(asked, 200 if asked.quick else 1000),
}


def chosen_campaigns(names: Iterable[str]) -> list[str]:
    """Those named, alone (`crash:run`) or as a group (`crash`); all where none is named."""
    found: list[str] = []
    for name in names:
        those = [one for one in CAMPAIGNS if one == name or one.startswith(f"{name}:")]
        if not those:
            raise InputError(f"no campaign '{name}'; there are: {', '.join(CAMPAIGNS)}")
        found += those
    return found or list(CAMPAIGNS)


def run_campaigns(names: Iterable[str] = (), asked: CampaignSettings = STANDARD) -> list[Campaign]:
    """Those named, or all."""
    return [found for name in chosen_campaigns(names) for found in CAMPAIGNS[name](asked)]
