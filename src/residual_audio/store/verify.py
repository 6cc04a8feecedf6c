"""Whether every byte of a store is what was written."""

from __future__ import annotations

from pathlib import Path

from residual_audio.files import is_temporary
from residual_audio.progress import SILENT, Progress
from residual_audio.provenance import sha256_file
from residual_audio.store.lock import is_lock
from residual_audio.store.manifest import NAME, is_intact, parse
from residual_audio.store.reader import store_folder


def verify_store(path: str | Path, progress: Progress = SILENT) -> list[str]:
    """What is wrong, one line a file; empty when nothing is."""
    folder = store_folder(path)
    manifest_path = folder / NAME
    if not manifest_path.is_file():
        return [f"{NAME}: missing"]
    data = manifest_path.read_bytes()
    record = parse(data)
    problems = []
    if not is_intact(data):
        problems.append(f"{NAME}: changed since it was written (sha256 of itself differs)")
    if record is None:
        return problems
    if record.get("status") != "complete":
        problems.append(f"{NAME}: the extraction is not finished")
    files = listed_files(record)
    progress.step("reading every byte", len(files), "files")
    progress.keeps("nothing is written by a check; the same command starts again")
    for name, (digest, size) in files.items():
        problem = _problem(folder, name, digest, size)
        progress.advance()
        if problem:
            problems.append(f"{name}: {problem}")
    for found in sorted(folder.iterdir()):
        if found.name not in files and found.name != NAME and not is_lock(found.name):
            kind = (
                "left over from a stopped run"
                if is_temporary(found.name)
                else "not in the manifest"
            )
            problems.append(f"{found.name}: {kind}")
    return problems


def listed_files(record: dict) -> dict[str, tuple[str, int]]:
    """Name → sha256 and size of every file the manifest lists."""
    entries = [*(record.get("files") or []), *(record.get("shards") or [])]
    return {
        str(entry.get("name")): (str(entry.get("sha256")), int(entry.get("bytes") or 0))
        for entry in entries
        if isinstance(entry, dict)
    }


def _problem(folder: Path, name: str, digest: str, size: int) -> str | None:
    path = folder / name
    if path.name != name:
        return "not a name inside the store"
    if not path.is_file():
        return "missing"
    if path.stat().st_size != size:
        return f"has {path.stat().st_size} bytes instead of {size}"
    return None if sha256_file(path) == digest else "changed since it was written (sha256 differs)"
