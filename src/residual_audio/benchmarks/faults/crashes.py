"""Die at every moment of every write, start again: the same files, nothing lost, nothing left."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from residual_audio import files
from residual_audio.benchmarks.faults.children import in_child
from residual_audio.benchmarks.faults.outcome import Campaign
from residual_audio.benchmarks.faults.works import WORKS, Work
from residual_audio.errors import EngineError
from residual_audio.progress import SILENT, Progress

_CHANGING = ("created_utc", "seconds", "sha256", "command")
"""What differs between two runs of the same work."""


def crash_everywhere(
    most: int | None = None, progress: Progress = SILENT, works: Sequence[Work] = WORKS
) -> list[Campaign]:
    """One campaign a piece of work; with `most`, only so many moments of each, spread evenly."""
    found = []
    for work in works:
        campaign = Campaign(
            f"crash: {work.name}",
            "killed at any moment of any write, the next start comes to the identical files; what "
            "was finished stays, no temporary file is left",
        )
        with tempfile.TemporaryDirectory() as folder:
            _crash(work, Path(folder), campaign, most, progress)
        found.append(campaign)
    return found


def _crash(
    work: Work, folder: Path, campaign: Campaign, most: int | None, progress: Progress
) -> None:
    counted = folder / "moments"
    if in_child(partial(_run, work, folder / "whole", None, counted)):
        raise EngineError(f"the undisturbed {work.name} failed")
    n_moments = int(counted.read_text())
    whole = contents(folder / "whole")
    step = 1 if most is None else max(1, -(-n_moments // most))
    progress.step(f"crash {work.name}", -(-n_moments // step), "moments")
    for moment in range(0, n_moments, step):
        out = folder / f"crashed-{moment}"
        status = in_child(partial(_run, work, out, moment, None))
        campaign.count(_judge(work, out, status, whole))
        progress.advance()


def _judge(work: Work, out: Path, status: int, whole: dict[str, str]) -> str | None:
    where = f"{out.name} of {work.name}"
    if status != -signal.SIGKILL:
        return f"{where} was not killed"
    before = contents(out)
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
    out.mkdir(exist_ok=True)
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
    if path.suffix in (".npz", ".ogg", ".html") or path.name in ("steps.json", "time.jsonl"):
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


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in _CHANGING}
    return [_lasting(item) for item in value] if isinstance(value, list) else value
