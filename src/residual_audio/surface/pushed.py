"""A checkpoint that was written, put into a repository on the hub."""

from __future__ import annotations

from pathlib import Path

from residual_audio.models import hub
from residual_audio.reweight.folded_checkpoint import exported_files


def check_repository(repository: str | None) -> None:
    """Refuse, before any work, what could not be pushed in the end; None is nothing to push."""
    if repository is not None:
        hub.check_repository(repository)


def push(checkpoint: Path, repository: str) -> str:
    """The checkpoint with its card and record, as one commit; gives the address."""
    return hub.push(exported_files(checkpoint), repository)
