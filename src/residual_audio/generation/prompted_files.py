"""Generated files and the prompts they were made from."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from residual_audio.data.audio_files import is_audio
from residual_audio.errors import InputError
from residual_audio.files import parse_json, read_json

FILE_NAMES = ("file", "file_name", "filename", "path", "audio", "id")
PROMPT_NAMES = ("prompt", "caption", "text", "description")


def read_prompts(source: Path, folder: Path) -> list[tuple[Path, str]]:
    """Files below `folder` with their prompts.

    From CSV or JSONL with a column for the file (with or without suffix) and one for the prompt,
    from a JSON object file → prompt, or, with the folder itself, from a `.txt` beside each file.
    """
    stated = _beside(source) if source.is_dir() else _stated(source)
    if not stated:
        raise InputError(f"'{source}' states no prompt")
    by_name: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if is_audio(path.name) and path.is_file():
            name = path.relative_to(folder)
            for key in (str(name), str(name.with_suffix("")), name.name, name.stem):
                by_name.setdefault(key, path)
    missing = [name for name, _ in stated if name not in by_name]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(stated)} prompts of '{source}' have no file in '{folder}', "
            f"the first is '{missing[0]}'"
        )
    return [(by_name[name], prompt) for name, prompt in stated]


def _beside(folder: Path) -> list[tuple[str, str]]:
    return [
        (str(text.relative_to(folder).with_suffix("")), text.read_text(encoding="utf-8").strip())
        for text in sorted(folder.rglob("*.txt"))
    ]


def _stated(source: Path) -> list[tuple[str, str]]:
    if not source.is_file():
        raise InputError(f"no file '{source}' with prompts")
    rows: Sequence[Mapping[str, object]]
    try:
        if source.suffix == ".json":
            document = read_json(source)
            if isinstance(document, dict):
                return [(str(name), str(prompt)) for name, prompt in document.items()]
            rows = document
        else:
            lines = source.read_text(encoding="utf-8-sig").splitlines()
            lines = [line for line in lines if line.strip()]
            if source.suffix == ".jsonl":
                rows = [parse_json(line) for line in lines]
            else:
                rows = list(csv.DictReader(lines))
        return [_named(row, source) for row in rows]
    except (TypeError, ValueError, AttributeError, csv.Error) as error:
        raise InputError(f"'{source}' cannot be read as prompts: {error}") from error


def _named(row: Mapping[str, object], source: Path) -> tuple[str, str]:
    file = next((row[n] for n in FILE_NAMES if row.get(n)), None)
    prompt = next((row[n] for n in PROMPT_NAMES if row.get(n)), None)
    if file is None or prompt is None:
        raise InputError(
            f"a row of '{source}' lacks a file ({', '.join(FILE_NAMES)}) or a prompt "
            f"({', '.join(PROMPT_NAMES)}): {json.dumps(row, ensure_ascii=False)[:120]}"
        )
    return str(file), str(prompt)
