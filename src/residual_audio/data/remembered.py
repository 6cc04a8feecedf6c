"""Where the sounds of a run lie on this machine, so that nobody is asked twice.

It is kept beside the run in a file of its own, `local.json`, with the folder relative to it. It is
no part of a result: nothing that is shown or shared is made from it, and on a machine where the
folder is not there it counts for nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from residual_audio.files import read_json, write_json

NAME = "local.json"


@dataclass(frozen=True)
class RunSource:
    """Folder and options that a data set was opened with."""

    dataset: str
    root: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)


def remember_source(run: Path, source: RunSource) -> Path:
    """Write it down beside the run."""
    run = run.expanduser()
    root = source.root
    if root is not None:
        root = Path(os.path.relpath(root.expanduser().resolve(), run.resolve()))
    record = {"dataset": source.dataset, "root": root and root.as_posix()}
    return write_json(run / NAME, {**record, "options": source.options})


def recall_source(run: Path, dataset: str) -> RunSource:
    """What was written down for this data set, as far as it is still there."""
    path = run / NAME
    found = read_json(path) if path.is_file() else {}
    if not isinstance(found, dict) or found.get("dataset") != dataset:
        return RunSource(dataset)
    root = run / str(found["root"]) if found.get("root") else None
    there = root is None or root.exists()
    return RunSource(dataset, root if there else None, dict(found.get("options") or {}))
