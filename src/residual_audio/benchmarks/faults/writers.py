"""Several processes at one folder, and SIGTERM: one works, the others are told, none mix."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

from residual_audio.benchmarks.faults.commands import begin, end_of, extract_to, said
from residual_audio.benchmarks.faults.crashes import contents
from residual_audio.benchmarks.faults.outcome import Campaign
from residual_audio.errors import EngineError
from residual_audio.progress import SILENT, Progress


def at_once(rounds: int = 10, seed: int = 0, progress: Progress = SILENT) -> list[Campaign]:
    """So many rounds of two writers on one store and on one cache, and of SIGTERM."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        begun = time.monotonic()
        if said(extract_to(room / "whole"), room / "said").code:
            raise EngineError("the undisturbed extraction failed")
        seconds = time.monotonic() - begun
        whole = contents(room / "whole")
        store = Campaign("writers: one store", "one writes, the other is told in one sentence")
        cache = Campaign("writers: one cache", "two at once keep the same embeddings")
        stopped = Campaign("SIGTERM", "ended at any time, the next start comes to the same files")
        progress.step("writers", 3 * rounds, "rounds")
        for i in range(rounds):
            store.count(_two_extractions(room / f"two-{i}", whole))
            progress.advance()
            cache.count(_two_evaluations(room / f"cache-{i}"))
            progress.advance()
            stopped.count(_terminated(room / f"term-{i}", draw.uniform(0, seconds), whole))
            progress.advance()
    return [store, cache, stopped]


def _two_extractions(out: Path, whole: dict[str, str]) -> str | None:
    notes = [out.with_suffix(f".{i}") for i in (0, 1)]
    children = [begin(extract_to(out), note) for note in notes]
    ends = [end_of(child, note) for child, note in zip(children, notes, strict=True)]
    for one in ends:
        trouble = one.trouble((0, 1))
        if trouble:
            return trouble
    if all(one.code for one in ends):
        return "both were refused"
    return None if contents(out) == whole else "other files than those of one writer"


def _two_evaluations(room: Path) -> str | None:
    room.mkdir()
    texts = []
    notes = [room / f"said-{i}" for i in (0, 1)]
    call = ["evaluate", "-m", "nano", "-d", "synthetic", "--data-option", "n_clips=4"]
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


def _terminated(out: Path, after_s: float, whole: dict[str, str]) -> str | None:
    note = out.with_suffix(".said")
    child = begin(extract_to(out), note)
    time.sleep(after_s)
    child.terminate()
    ended = end_of(child, note)
    if ended.code not in (0, 143, -signal.SIGTERM) or "Traceback" in ended.text:
        return f"exit {ended.code}: {ended.text[-300:]}"
    again = said(extract_to(out), note)
    if again.code:
        return f"the next start: {again.text[-300:]}"
    return None if contents(out) == whole else "other files than undisturbed"
