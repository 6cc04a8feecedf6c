"""Several processes at one folder, and SIGTERM: one works, the others are told, none mix."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from residual_audio.benchmarks.faults.children import ended, in_child, start
from residual_audio.benchmarks.faults.commands import (
    DATA,
    begin,
    end_of,
    extract_to,
    make_model,
    said,
)
from residual_audio.benchmarks.faults.crashes import contents
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.faults.works import MODEL, train_small
from residual_audio.errors import EngineError
from residual_audio.results import slug
from residual_audio.store.lock import NAME as LOCK

ROUNDS = 8


@dataclass(frozen=True)
class Undisturbed:
    """What undisturbed work writes."""

    store: dict[str, str]
    training: dict[str, str]


def at_once(asked: CampaignSettings = STANDARD, rounds: int = ROUNDS) -> list[Campaign]:
    """So many rounds of two writers on one store, one cache and one training run, of SIGTERM, and
    of locks that nobody holds or that the file system does not have."""
    found = [asked.campaign(f"writers: {name}", promise) for name, (promise, _) in CASES.items()]
    if all(campaign.complete for campaign in found):
        return found
    draw = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        make_model(room)
        begun = time.monotonic()
        if said(extract_to(room / "whole"), room / "said").code:
            raise EngineError("the undisturbed extraction failed")
        seconds = time.monotonic() - begun
        if in_child(partial(train_small, room / "trained")):
            raise EngineError("the undisturbed training failed")
        ground = Undisturbed(contents(room / "whole"), contents(room / "trained"))
        asked.progress.step("writers", len(found) * rounds, "rounds")
        for i in range(rounds):
            after_s = draw.uniform(0, seconds)
            for campaign, (_, case) in zip(found, CASES.values(), strict=True):
                out = room / f"{slug(campaign.name)}-{i}"
                campaign.attempt(partial(case, out, ground, after_s))
                asked.progress.advance()
    return [campaign.end() for campaign in found]


def _two_extractions(out: Path, ground: Undisturbed, after_s: float) -> str | None:
    notes = [out.with_suffix(f".{i}") for i in (0, 1)]
    children = [begin(extract_to(out), note) for note in notes]
    ends = [end_of(child, note) for child, note in zip(children, notes, strict=True)]
    for one in ends:
        trouble = one.trouble((0, 1))
        if trouble:
            return trouble
    if all(one.code for one in ends):
        return "both were refused"
    return None if contents(out) == ground.store else "other files than those of one writer"


def _two_evaluations(room: Path, ground: Undisturbed, after_s: float) -> str | None:
    room.mkdir()
    texts = []
    notes = [room / f"said-{i}" for i in (0, 1)]
    call = ["evaluate", "-m", str(room.parent / MODEL), *DATA]
    cached = partial(_cache_in, room / "cache")
    children = [
        begin([*call, "--json", "--out", str(room / f"out-{i}")], note, cached)
        for i, note in enumerate(notes)
    ]
    for i, (child, note) in enumerate(zip(children, notes, strict=True)):
        trouble = end_of(child, note).trouble((0,))
        if trouble:
            return trouble
        texts.append(contents(room / f"out-{i}"))
    if not texts[0]:
        return "nothing was written"
    return None if texts[0] == texts[1] else "two results of one question"


def _cache_in(folder: Path) -> None:
    os.environ["RESIDUAL_AUDIO_CACHE"] = str(folder)


def _terminated(out: Path, ground: Undisturbed, after_s: float) -> str | None:
    note = out.with_suffix(".said")
    child = begin(extract_to(out), note)
    time.sleep(after_s)
    child.terminate()
    found = end_of(child, note)
    if found.code not in (0, 143, -signal.SIGTERM) or "Traceback" in found.text:
        return f"exit {found.code}: {found.text[-300:]}"
    again = said(extract_to(out), note)
    if again.code:
        return f"the next start: {again.text[-300:]}"
    return None if contents(out) == ground.store else "other files than undisturbed"


def _two_trainings(out: Path, ground: Undisturbed, after_s: float) -> str | None:
    out.mkdir()
    children = [start(partial(train_small, out)) for _ in range(2)]
    codes = [ended(child) for child in children]
    if 0 not in codes or any(code not in (0, 1) for code in codes):
        return f"they ended with {codes}"
    return None if contents(out) == ground.training else "other files than those of one"


def _lock_left(out: Path, ground: Undisturbed, after_s: float) -> str | None:
    """By a process that died: killed while it holds the folder."""
    note = out.with_suffix(".said")
    child = begin(extract_to(out), note)
    for _ in range(3000):
        if (out / "store" / LOCK).exists() or not child.is_alive():
            break
        time.sleep(0.01)
    child.kill()
    end_of(child, note)
    trouble = said(extract_to(out), note).trouble((0,))
    return trouble or (None if contents(out) == ground.store else "other files than undisturbed")


def _no_locks(out: Path, ground: Undisturbed, after_s: float) -> str | None:
    """A file system that cannot lock is not taken for another process."""
    note = out.with_suffix(".said")
    trouble = said(extract_to(out), note, _locks_fail).trouble((0,))
    return trouble or (None if contents(out) == ground.store else "other files than undisturbed")


def _locks_fail() -> None:
    import errno
    import fcntl

    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    fcntl.flock = flock  # type: ignore[assignment]
    fcntl.lockf = flock  # type: ignore[assignment]


Case = Callable[[Path, Undisturbed, float], str | None]
CASES: dict[str, tuple[str, Case]] = {
    "one store": ("one writes, the other is told in one sentence", _two_extractions),
    "one cache": ("two at once keep the same embeddings", _two_evaluations),
    "one training run": ("one trains, the other is told", _two_trainings),
    "SIGTERM": ("ended at any time, the next start comes to the same files", _terminated),
    "a lock that is left": ("the lock of a process that died is taken over", _lock_left),
    "no locks": ("a file system without locks is written to by one", _no_locks),
}
