"""What produced this file: versions, hashes, seed, command; nothing about whose machine it was."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from residual_audio import __version__
from residual_audio.files import json_ready

# distributions whose version can change a number
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "transformers", "soundfile", "soxr")

# An absolute path, alone or after `name:`, `--option=` or a quote: /home/ann/x, ~/x, C:\x.
# A URL is matched first, so that its slashes are left alone.
_ABSOLUTE = re.compile(
    r"""(?P<url>\w+://\S*)
    |(?<![^\s:=,;'"(\[])(?:~[\w.-]*)?(?:[A-Za-z]:)?[\\/](?!\s)[^\s:=,;'")\]]*""",
    re.VERBOSE,
)

_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}")


def collect(
    model: object = None,
    dataset: object = None,
    seed: int | None = None,
    seconds: float | None = None,
    **extra: Any,
) -> dict[str, object]:
    """Provenance of a result, ready for JSON.

    `model` is anything with `name`, `family` and `sha256`; `dataset` anything with `name`, `clips`
    and `fingerprint()`. Both may be lists. `seconds` is how long it took. `extra` is recorded as
    given, with paths shortened. A package that runs from its git working tree records the commit.
    """
    record: dict[str, Any] = {
        "package": "residual-audio",
        "version": __version__,
        "python": platform.python_version(),
        "packages": versions(),
        # neither the node name nor the kernel build, which may carry a host's or a person's name
        "platform": {"system": platform.system(), "machine": platform.machine()},
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_line(),
        "seed": seed,
    }
    commit = git_commit()
    if commit is not None:
        record["commit"] = commit
    if seconds is not None:
        record["seconds"] = round(seconds, 3)
    if model is not None:
        record["model"] = _each(model, _describe_model)
    if dataset is not None:
        record["dataset"] = _each(dataset, _describe_dataset)
    return record | {name: plain(value) for name, value in extra.items()}


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Installed versions, read from metadata so that nothing heavy is imported for it."""
    found: dict[str, str] = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def git_commit(folder: Path = Path(__file__).parent) -> str | None:
    """Commit of the working tree that `folder` is tracked in, `+` where files were changed.

    None where there is no such tree or no git: an installed package may lie below somebody else's.
    """
    try:
        _git(folder, "ls-files", "--error-unmatch", "--", "__init__.py")
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+" if _git(folder, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    call = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    done = subprocess.run(call, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def command_line(argv: list[str] | None = None) -> list[str]:
    """The command as typed, absolute paths reduced to their last part."""
    given = sys.argv if argv is None else argv
    if not given:
        return []
    return [Path(given[0]).name, *(without_machine_paths(argument) for argument in given[1:])]


def without_machine_paths(text: str) -> str:
    """`laion:/home/ann/clap.pt` → `laion:…/clap.pt`; relative paths stay as they are."""

    def shorten(found: re.Match[str]) -> str:
        if found["url"]:
            return _public(found["url"])
        parts = [part for part in re.split(r"[\\/]+", found.group()) if part]
        # a bare "~" or drive has no last part worth keeping
        return f"…/{parts[-1]}" if parts and not parts[-1].startswith("~") else "…"

    whole = text.strip()
    # a path that is one argument may hold spaces, which the pattern inside prose cannot cross
    if re.match(r"(?:~[\w.-]*)?(?:[A-Za-z]:)?[\\/]", whole):
        name = re.split(r"[\\/]+", whole.rstrip("\\/"))[-1]
        return f"…/{name}" if name and not re.fullmatch(r"~.*|[A-Za-z]:", name) else "…"
    return _TOKEN.sub("hf_…", _ABSOLUTE.sub(shorten, text))


def _public(url: str) -> str:
    """An address without who asks there, and without what signs the question."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() == "file":
        return f"file://…/{rest.rstrip('/').rpartition('/')[2]}"
    place, mark, _ = rest.partition("?")
    host, slash, path = place.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}{'?…' if mark else ''}"


def model_label(model: Any) -> str:
    """Its name; of a path only the last part, with the digest of the weights to tell two apart."""
    shown = without_machine_paths(str(model.name))
    sha256 = str(getattr(model, "sha256", "") or "")
    return shown if shown == str(model.name) or not sha256 else f"{shown}@{sha256[:8]}"


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes, read in pieces."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain(value: object) -> Any:
    """Value as JSON types, with the paths of this machine shortened in every string."""
    return json_ready(value, without_machine_paths)


def _each(value: object, describe: Callable[[object], dict[str, object]]) -> Any:
    if isinstance(value, list | tuple):
        return [describe(item) for item in value]
    return describe(value)


def _describe_model(model: Any) -> dict[str, Any]:
    if isinstance(model, str):
        return {"name": without_machine_paths(model)}
    record = {"name": without_machine_paths(str(getattr(model, "name", type(model).__name__)))}
    for field in ("family", "sha256"):
        value = getattr(model, field, None)
        if value is not None:
            record[field] = str(value)
    return record


def _describe_dataset(dataset: Any) -> dict[str, object]:
    if isinstance(dataset, str):
        return {"name": without_machine_paths(dataset)}
    record: dict[str, Any] = {"name": without_machine_paths(str(dataset.name))}
    if hasattr(dataset, "fingerprint"):
        record["fingerprint"] = dataset.fingerprint()
    if hasattr(dataset, "clips"):
        record["n_clips"] = len(dataset.clips)
    if getattr(dataset, "recipe", ""):
        record["recipe"] = dataset.recipe
    return record
