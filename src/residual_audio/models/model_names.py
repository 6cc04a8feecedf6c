"""What a model's name says to other people: the repository or the file it came from."""

from __future__ import annotations

from pathlib import Path

from residual_audio.errors import ResidualAudioError
from residual_audio.models.hf import find_folder

LICENCES = {"nano": "cc-by-nc-3.0"}
"""Of bundled models; others say it in the README.md of their folder."""


def base_of(name: str) -> str:
    """`hf:laion/clap-htsat-unfused@main` → `laion/clap-htsat-unfused`; of a path its last part.

    >>> base_of("hf:laion/clap-htsat-unfused"), base_of("laion:/data/630k.pt"), base_of("nano")
    ('laion/clap-htsat-unfused', '630k.pt', 'nano')
    """
    ref = name.partition(" + ")[0].partition(":")[2] or name.partition(" + ")[0]
    repository = ref.partition("@")[0]
    is_id = repository.count("/") == 1 and not repository.startswith((".", "/", "~"))
    return repository if is_id and not Path(ref).exists() else Path(ref).name


def licence_of(name: str) -> str | None:
    """What the card beside the weights of a model says; None where there is none."""
    if name in LICENCES:
        return LICENCES[name]
    from huggingface_hub import metadata_load
    from yaml import YAMLError

    family, _, ref = name.rpartition(":")
    try:
        folder = find_folder(ref) if family == "hf" else Path(ref).expanduser()
        card = (folder if folder.is_dir() else folder.parent) / "README.md"
        found = (metadata_load(card) or {}) if card.is_file() else {}
    except (ResidualAudioError, OSError, ValueError, TypeError, YAMLError):
        return None
    licence = found.get("license")
    return licence if isinstance(licence, str) else None
