"""Die at every moment of every write, start again: the same files, nothing lost, nothing left."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from residual_audio import files
from residual_audio.benchmarks.faults.children import in_child
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.faults.works import WORKS, Work
from residual_audio.errors import EngineError
from residual_audio.seals import SUMS

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
    ground = folder / "ground"
    ground.mkdir()
    if work.prepare is not None and in_child(partial(work.prepare, ground)):
        raise EngineError(f"what {work.name} starts from could not be made")
    counted = folder / "moments"
    if in_child(partial(_run, work, _begin(ground, folder / "whole"), None, counted)):
        raise EngineError(f"the undisturbed {work.name} failed")
    whole = contents(folder / "whole")
    moments = chosen_moments(int(counted.read_text()), most, work.all_moments)
    progress = campaign.asked.progress
    progress.step(f"crash {work.name}", len(moments), "moments")
    for moment in moments:
        out = folder / f"crashed-{moment}"
        campaign.attempt(lambda out=out, moment=moment: _at(work, ground, out, moment, whole))  # type: ignore[misc]
        shutil.rmtree(out, ignore_errors=True)
        progress.advance()
    campaign.end()


def chosen_moments(n: int, most: int | None, every: bool) -> list[int]:
    """All; or of each file one, another one each time; or so many, spread evenly."""
    if most is not None:
        return list(range(0, n, max(1, -(-n // most))))
    # a file has five moments: begun, written, synced, renamed, durable
    return [i for i in range(n) if every or i % 5 == (i // 5) % 5]


def _begin(ground: Path, out: Path) -> Path:
    return Path(shutil.copytree(ground, out))


def _at(work: Work, ground: Path, out: Path, moment: int, whole: dict[str, str]) -> str | None:
    status = in_child(partial(_run, work, _begin(ground, out), moment, None))
    return _judge(work, out, status, whole)


def _judge(work: Work, out: Path, status: int, whole: dict[str, str]) -> str | None:
    where = f"{out.name} of {work.name}"
    if status != -signal.SIGKILL:
        return f"{where} was not killed"
    before = contents(out)
    if work.may_refuse and (out / work.may_refuse).exists():
        if not in_child(partial(work.write, out)):
            return f"{where}: written over what was there"
        shutil.rmtree(out / work.may_refuse)
    if in_child(partial(work.write, out)):
        return f"{where}: the next start failed"
    after = contents(out)
    finished = [name for name in before if name in whole and not files.is_temporary(name)]
    shards = [name for name in finished if Path(name).name.startswith("shard-")]
    if any(after.get(name) != before[name] for name in shards):
        return f"{where}: a finished shard was changed or lost"
    if after != whole:
        differ = sorted(n for n in {*after, *whole} if after.get(n) != whole.get(n))
        return f"{where}: {', '.join(differ[:3])} differ from an undisturbed run"
    return None


def _run(work: Work, out: Path, die_at: int | None, count_in: Path | None) -> None:
    n = 0

    def watch(moment: files.Moment, path: Path) -> None:
        nonlocal n
        if n == die_at:
            if moment == "written" and path.is_file():
                os.truncate(path, path.stat().st_size // 2)  # in the middle of writing it
            os.kill(os.getpid(), signal.SIGKILL)
        n += 1

    files.watch = watch
    work.write(out)
    if count_in is not None:
        count_in.write_text(str(n))


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
