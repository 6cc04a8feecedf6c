"""Files that are all there or not there, and JSON that every reader accepts."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import secrets
import shutil
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from residual_audio.errors import InputError, ResidualAudioError

if TYPE_CHECKING:
    from pyarrow import Table

TEMPORARY = ".tmp"
_LEFT_ALONE_S = 24 * 3600


def cache_dir() -> Path:
    """`RESIDUAL_AUDIO_CACHE`, or the usual place in the user's home."""
    given = os.environ.get("RESIDUAL_AUDIO_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "residual-audio"


def shown(name: str | Path) -> str:
    """A name as text that any file and terminal can hold: bytes that are not UTF-8 as `\\xff`,
    what moves a cursor or turns the direction of writing as `\\x1b`."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return harmless(text)


def harmless(text: str, keep: str = "") -> str:
    """Text without control characters, lone surrogates and changes of direction."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode() if _moves(c) and c not in keep else c for c in text
    )


def _moves(c: str) -> bool:
    turns = "\u2028" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"
    return turns or unicodedata.category(c) in ("Cc", "Cs")


Moment = Literal["begin", "written", "synced", "renamed", "durable"]
"""Moments of a write at which a process may die."""
watch: Callable[[Moment, Path], None] | None = None
"""Told each moment of each write and the file that is being written: campaigns that crash the
process everywhere set it, nothing else does."""


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """A temporary name to write to; it takes the place of `path` only when complete and on disk.

    Not `durable`: complete, but nobody waits for the disk. For files that are made again where a
    machine, not just a process, may have lost them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _clean_up(path)
    temporary = _temporary(path)
    try:
        _tell("begin", temporary)
        yield temporary
        _tell("written", temporary)
        if durable:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
        temporary.chmod(0o644)  # some writers leave files that only their owner can read
        _tell("synced", temporary)
        os.replace(temporary, path)
        _tell("renamed", path)
        if durable:
            _sync_folder(path.parent)
        _tell("durable", path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """The same for a folder of files: it appears whole, in the place of an empty one or of none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _clean_up(path)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        _tell("begin", temporary)
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _tell("written", file)
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
                file.chmod(0o644)
        _tell("synced", temporary)
        if path.is_dir():
            path.rmdir()  # an empty one; anything else is an error
        temporary.rename(path)
        _tell("renamed", path)
        _sync_folder(path.parent)
        _tell("durable", path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def belongs_to(folder: Path, path: Path) -> bool:
    """A file below a folder, and not a link to something outside that a page would then carry."""
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def is_temporary(name: str) -> bool:
    """Whether a file name is one of those that writing leaves when it is killed."""
    last = name.rpartition("/")[2]
    return last.startswith(".") and last.endswith(TEMPORARY)


def _tell(moment: Moment, path: Path) -> None:
    if watch is not None:
        watch(moment, path)


def _temporary(path: Path) -> Path:
    made_by = f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    return path.with_name(f".{path.name}.{made_by}{TEMPORARY}")


def _host() -> str:
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _clean_up(path: Path) -> None:
    """Remove what processes that died while writing `path` left beside it."""
    begins = f".{path.name}."
    # every write asks, and folders hold hundreds of files: a glob would make a path of each
    names = [n for n in os.listdir(path.parent) if n.startswith(begins) and n.endswith(TEMPORARY)]
    for left in map(path.parent.joinpath, names):
        host, _, rest = left.name.removeprefix(begins).partition("-")
        pid = rest.partition("-")[0]
        with contextlib.suppress(OSError):
            # a process of another machine may be alive: its file must have been left alone long
            foreign = host != _host() and time.time() - left.stat().st_mtime < _LEFT_ALONE_S
            if not pid.isdigit() or foreign or (host == _host() and _alive(int(pid))):
                continue
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes, durable: bool = True) -> Path:
    with replacing(path, durable) as temporary:
        temporary.write_bytes(data)
    return path


def write_text(path: Path, text: str, durable: bool = True) -> Path:
    return write_bytes(path, text.encode("utf-8"), durable)


def write_json(path: Path, value: object) -> Path:
    """As UTF-8 JSON; what is no JSON type is made one by `json_ready`."""
    text = json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False)
    return write_text(path, text + "\n")


def write_safetensors(
    path: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, str] | None = None
) -> Path:
    """Named arrays and a header of strings.

    Through bytes: the library's own writer leaves a temporary file behind when it is killed.
    """
    return write_bytes(path, safetensors_bytes(arrays, header))


def safetensors_bytes(
    arrays: Mapping[str, np.ndarray], header: Mapping[str, str] | None = None
) -> bytes:
    """What `write_safetensors` writes, for those who record its digest."""
    from safetensors.numpy import save

    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    data = save(whole, dict(header) if header else None)
    return _in_order(data) if header and len(header) > 1 else data


def _in_order(data: bytes) -> bytes:
    """The library writes several header strings in random order: the same content, other bytes."""
    end = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:end])
    strings = dict(sorted(entries.pop("__metadata__").items()))
    text = json.dumps({"__metadata__": strings, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[end:]


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """Named arrays as numpy's own archive, without pickles."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]
    return path


def write_parquet(path: Path, table: Table) -> Path:
    """A table of pyarrow."""
    from pyarrow import parquet

    with replacing(path) as temporary:
        parquet.write_table(table, temporary)
    return path


def read_parquet(source: Path | bytes, columns: Sequence[str] | None = None) -> Table:
    """A table of pyarrow, from a file or its bytes.

    From memory and in this thread: `parquet.read_table` starts threads whose end, beside torch's,
    can abort the process when it exits ("terminate called without an active exception")."""
    import pyarrow as pa
    from pyarrow import parquet

    data = source if isinstance(source, bytes) else source.read_bytes()
    with parquet.ParquetFile(pa.BufferReader(data)) as file:
        return file.read(columns=None if columns is None else list(columns), use_threads=False)


def parse_json(text: str | bytes) -> Any:
    """As `json.loads`; a text that is nested too deeply is a `ValueError` like any other that is
    no JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, error: type[ResidualAudioError] = InputError) -> Any:
    """Any JSON document, with or without a byte order mark, or an error that names the file."""
    try:
        return parse_json(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise error(f"no file '{path}'") from None
    except (ValueError, OSError) as reason:
        raise error(f"'{path}' is not readable JSON: {reason}") from reason


def read_json_object(path: Path, error: type[ResidualAudioError] = InputError) -> dict[str, Any]:
    """The same where only an object makes sense."""
    value = read_json(path, error)
    if not isinstance(value, dict):
        raise error(f"'{path}' holds a {type(value).__name__}, not an object")
    return value


def json_ready(value: Any, text: Callable[[str], str] = str) -> Any:
    """JSON types only: arrays become lists, settings objects, NaN and infinities null, sets sorted.

    `text` is applied to every string that is a value.
    """
    kind = type(value)
    if kind is list:  # first what there is most of: a page has some hundred thousand of these
        if set(map(type, value)) == {float}:
            return [item if math.isfinite(item) else None for item in value]
        return [json_ready(item, text) for item in value]
    if kind is str:
        return text(value)
    if kind is float or isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return text(value)
    if hasattr(value, "tolist"):  # arrays, their numbers, tensors
        return json_ready(value.tolist(), text)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: json_ready(getattr(value, f.name), text) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_ready(item, text) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(json_ready(item, text) for item in value)
    if isinstance(value, Iterable):
        return [json_ready(item, text) for item in value]
    return text(str(value))
