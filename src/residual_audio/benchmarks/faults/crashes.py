"""Die at every moment of every write, start again: the same files, nothing lost, nothing left.

Moments that show the same files (written, and then synced) are one start: what it does depends on
what it finds.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from residual_audio import files
from residual_audio.benchmarks.faults.children import in_child
from residual_audio.benchmarks.faults.filmed import film, read_film
from residual_audio.benchmarks.faults.grounds import stand_on
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.faults.works import WORKS, Work
from residual_audio.errors import EngineError
from residual_audio.seals import SUMS

NAME = "run"
_CHANGING = ("created_utc", "seconds", "sha256", "seal", "command", "commit")
"""What differs between two runs of the same work."""


def crash_everywhere(
    asked: CampaignSettings = STANDARD, works: Sequence[Work] = WORKS, most: int | None = None
) -> list[Campaign]:
    """One campaign a piece of work; with `most`, only so many moments of each, spread evenly."""
    found = []
    for work in works:
        campaign = asked.campaign(
            f"crash: {work.name}",
            "killed at any moment of any write, the next start comes to the identical files; what "
            "was finished stays, no temporary file is left",
        )
        if not campaign.complete:
            with tempfile.TemporaryDirectory() as folder:
                _crash(work, Path(folder), campaign, most)
        found.append(campaign)
    return found


def _crash(work: Work, folder: Path, campaign: Campaign, most: int | None) -> None:
    ground = stand_on(work.starts_from, folder / "ground")
    # folders of one name: pages show what a run is called
    begun = Path(shutil.copytree(ground, folder / "whole" / NAME))
    if in_child(partial(film, work.write, begun, folder / "film")):
        raise EngineError(f"the undisturbed {work.name} failed")
    whole = contents(begun)
    found = read_film(folder / "film")
    moments = chosen_moments(len(found.moments), most)
    progress = campaign.asked.progress
    progress.step(f"crash {work.name}", len(moments), "moments")
    judged: dict[int, str | None] = {}
    for i in moments:
        moment, state = found.moments[i]
        out = folder / f"crashed-{state}" / NAME

        def start_again(out: Path = out, state: int = state, moment: str = moment) -> str | None:
            if state not in judged:  # what the next start does depends on what it finds, alone
                problem = _judge(work, found.show(state, out), whole)
                judged[state] = problem and f"killed at '{moment}' of {work.name}: {problem}"
                shutil.rmtree(out.parent, ignore_errors=True)
            return judged[state]

        campaign.attempt(start_again)
        progress.advance()
    campaign.end()


def chosen_moments(n: int, most: int | None) -> list[int]:
    """All, or so many, spread evenly."""
    return list(range(0, n, 1 if most is None else max(1, -(-n // most))))


def _judge(work: Work, out: Path, whole: dict[str, str]) -> str | None:
    before = contents(out)
    if work.may_refuse and (out / work.may_refuse).exists():
        if not in_child(partial(work.write, out)):
            return "written over what was there"
        shutil.rmtree(out / work.may_refuse)
    if in_child(partial(work.write, out)):
        return "the next start failed"
    after = contents(out)
    finished = [name for name in before if name in whole and not files.is_temporary(name)]
    shards = [name for name in finished if Path(name).name.startswith("shard-")]
    if any(after.get(name) != before[name] for name in shards):
        return "a finished shard was changed or lost"
    if after != whole:
        differ = sorted(n for n in {*after, *whole} if after.get(n) != whole.get(n))
        return f"{', '.join(differ[:3])} differ from an undisturbed run"
    return None


def contents(folder: Path) -> dict[str, str]:
    """Digest of each file below a folder, of what does not change from run to run."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(_same(path)).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _same(path: Path) -> bytes:
    """Archives and pages carry dates, Ogg files a random number: their being there must do."""
    if path.suffix in (".npz", ".ogg", ".html") or path.name in (
        "steps.json",
        "time.jsonl",
        SUMS,
    ):
        return b""
    if path.parent.name == "clip":  # pages of the atlas that hold sound
        return b""
    if path.suffix == ".csv":
        return _without_seconds(path.read_text(encoding="utf-8")).encode()
    data = path.read_bytes()
    if path.suffix == ".json":
        with suppress(ValueError):  # half of one, in a folder that was not finished
            data = json.dumps(_lasting(json.loads(data)), sort_keys=True).encode()
    return data


def _without_seconds(text: str) -> str:
    rows = list(csv.reader(text.splitlines()))
    kept = [i for i, name in enumerate(rows[0]) if "seconds" not in name] if rows else []
    return repr([[row[i] for i in kept if i < len(row)] for row in rows])


def _lasting(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in _CHANGING}
    return [_lasting(item) for item in value] if isinstance(value, list) else value
