"""Die at every moment of every write, start again: the same files, nothing lost, nothing left.

What a start does depends on what it finds, alone. So moments that show the same files (written, and
then synced) are one start; and a start that comes to what the undisturbed work had at the end of
the part it was killed in need not go on from there: what follows begins at a moment of its own.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from residual_audio import files
from residual_audio.benchmarks.faults.children import in_child
from residual_audio.benchmarks.faults.filmed import Film, film, read_film
from residual_audio.benchmarks.faults.grounds import stand_on
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.faults.works import WORKS, Work
from residual_audio.errors import EngineError
from residual_audio.pipeline.steps import RECORD
from residual_audio.provenance import sha256_file
from residual_audio.seals import SEAL, SUMS

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

        def start_again(i: int = i, state: int = state, moment: str = moment) -> str | None:
            if state not in judged:
                room = folder / f"crashed-{state}"
                problem = None
                if not _goes_on(work, found, i, room / "part" / NAME):
                    problem = _judge(work, found.show(state, room / NAME), whole)
                judged[state] = problem and f"killed at '{moment}' of {work.name}: {problem}"
                shutil.rmtree(room, ignore_errors=True)
            return judged[state]

        campaign.attempt(start_again)
        progress.advance()
    campaign.end()


def chosen_moments(n: int, most: int | None) -> list[int]:
    """All, or so many, spread evenly."""
    return list(range(0, n, 1 if most is None else max(1, -(-n // most))))


def _goes_on(work: Work, found: Film, moment: int, out: Path) -> bool:
    """Whether a start from this moment comes to the end of its part as undisturbed work did."""
    mark = found.next_mark(moment, work.marks) if work.marks else None
    if mark is None:
        return False
    found.show(found.moments[moment][1], out)
    wanted = contents(found.show(mark, out.parent.with_name("wanted") / NAME))
    return in_child(partial(_until_marked, work, out)) == 0 and contents(out) == wanted


def _until_marked(work: Work, out: Path) -> None:
    def watch(moment: files.Moment, path: Path) -> None:
        if moment == "durable" and path.name == work.marks:
            os._exit(0)

    files.watch = watch
    work.write(out)


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
    """Archives and pages carry dates, Ogg files a random number: their being there must do. Lists
    of digests must be right."""
    if path.suffix in (".npz", ".ogg", ".html") or path.name == "time.jsonl":
        return b""
    if path.name == SUMS:
        lines = (line.split("  ", 1) for line in path.read_text().splitlines())
        return _right(path.parent, {name: digest for digest, name in lines})
    if path.name == RECORD:
        with suppress(ValueError):
            steps = json.loads(path.read_text())
            return b"".join(_right(path.parent, steps[n]["files"]) for n in steps if n != SEAL)
    if path.parent.name == "clip":  # pages of the atlas that hold sound
        return b""
    if path.suffix == ".csv":
        return _without_seconds(path.read_text(encoding="utf-8")).encode()
    data = path.read_bytes()
    if path.suffix == ".json":
        with suppress(ValueError):  # half of one, in a folder that was not finished
            data = json.dumps(_lasting(json.loads(data)), sort_keys=True).encode()
    return data


def _right(folder: Path, digests: Mapping[str, str]) -> bytes:
    """Which files there are as a list says."""
    return repr(
        [
            (name, (folder / name).is_file() and sha256_file(folder / name) == digest)
            for name, digest in sorted(digests.items())
        ]
    ).encode()


def _without_seconds(text: str) -> str:
    rows = list(csv.reader(text.splitlines()))
    kept = [i for i, name in enumerate(rows[0]) if "seconds" not in name] if rows else []
    return repr([[row[i] for i in kept if i < len(row)] for row in rows])


def _lasting(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in _CHANGING}
    return [_lasting(item) for item in value] if isinstance(value, list) else value
