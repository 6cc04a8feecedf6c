"""Models of strangers: nothing in them runs, nothing outside is read, sizes are bounded."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from residual_audio.benchmarks.faults.children import ended, start
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.small_model import small_model
from residual_audio.errors import ResidualAudioError
from residual_audio.models import native
from residual_audio.models.checkpoint_files import SUMS, WEIGHTS
from residual_audio.models.registry import load_model

LONGEST_S = 30.0
MOST_BYTES = 2**30
Change = Callable[[Path], None]
"""Makes a good model folder a bad one; it may leave a file beside it that must not be read."""
SECRET = "SECRET-OF-ANOTHER-FOLDER"


class Runs:
    """Unpickled, it would call something."""

    def __init__(self, call: object, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> Any:
        return self.call, self.arguments


def hostile_models(asked: CampaignSettings = STANDARD, most: int | None = None) -> list[Campaign]:
    """Pickles, headers, configs, links: one campaign each, `most` cases of each."""
    promises = {
        "pickles": "nothing in a pickle is executed, and the error says so",
        "tensors": "a header that lies is an error that names the file, in bounded memory",
        "configs": "a config that climbs, points or asks too much is refused in bounded memory",
        "links": "links out of a folder give nothing away of what they point at",
    }
    cases = {"pickles": _pickles, "tensors": _headers, "configs": _configs, "links": _links}
    found = []
    for name, promise in promises.items():
        campaign = asked.campaign(f"models: {name}", promise)
        if not campaign.complete:
            with tempfile.TemporaryDirectory() as folder:
                room = Path(folder)
                native.save(small_model(), room / "good")
                changes = list(cases[name](room))[:most]
                asked.progress.step(f"models {name}", len(changes), "models")
                for i, (what, change) in enumerate(changes):
                    campaign.attempt(partial(_try, room, room / f"{i}", what, change))
                    asked.progress.advance()
            campaign.end()
        found.append(campaign)
    return found


def _try(room: Path, folder: Path, what: str, change: Change) -> str | None:
    shutil.copytree(room / "good", folder)
    (folder / SUMS).unlink()
    change(folder)
    answer = room / "answer"
    answer.unlink(missing_ok=True)
    begun = time.monotonic()
    code = ended(start(partial(_load, folder, answer)), LONGEST_S)
    said = answer.read_text() if answer.is_file() else ""
    if (room / "ran").exists():
        (room / "ran").unlink()
        return f"{what}: something ran"
    if SECRET in said:
        return f"{what}: gave away what lies outside"
    if code or not said:
        return f"{what}: ended with {code} after {time.monotonic() - begun:.0f} s"
    return None if said.startswith("refused") else f"{what}: {said[:200]}"


def _load(folder: Path, answer: Path) -> None:
    """In the child: what loading said."""
    there = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (there + MOST_BYTES,) * 2)
    pickles = sorted(folder.glob("*.pt"))
    try:
        load_model(f"laion:{pickles[0]}" if pickles else str(folder), "cpu")
        answer.write_text("loaded")
    except ResidualAudioError as error:
        named = folder.name in str(error) or any(p.name in str(error) for p in folder.iterdir())
        answer.write_text(f"refused: {error}" if named else f"does not say where: {error}")
    except BaseException as error:
        answer.write_text(f"{type(error).__name__}: {error}")


def _pickles(room: Path) -> Iterator[tuple[str, Change]]:
    import runpy

    mark, script = room / "ran", room / "script.py"
    script.write_text(f"open({str(mark)!r}, 'w')")
    calls = [
        Runs(os.system, f"touch {mark}"),
        Runs(subprocess.Popen, ["touch", str(mark)]),
        Runs(eval, f"open({str(mark)!r}, 'w')"),
        Runs(exec, f"open({str(mark)!r}, 'w')"),
        Runs(open, str(mark), "w"),
        Runs(runpy.run_path, str(script)),
        Runs(shutil.copy, str(script), str(mark)),
        Runs(Path.touch, mark),
        Runs(torch.hub.load, "x/y", "z"),
        Runs(__import__, "antigravity"),
        Runs(os.remove, str(script)),
        Runs(torch.load, str(mark)),
    ]
    for i, call in enumerate(calls):
        for how in ("plain", "torch"):
            yield f"pickle {i} {how}", partial(_write_pickle, {"state_dict": call}, how)


def _write_pickle(value: object, how: str, folder: Path) -> None:
    path = folder / "model.pt"
    if how == "plain":
        path.write_bytes(pickle.dumps(value))
    else:
        torch.save(value, path)


def _header(entries: object, data: bytes = b"", size: int | None = None) -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def _headers(room: Path) -> Iterator[tuple[str, Change]]:
    def tensor(shape: list[int], begin: int, end: int) -> dict[str, object]:
        return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}

    lies = {
        "a header of exabytes": _header({}, size=2**62),
        "a header longer than the file": _header({}, size=10**6),
        "no header": b"",
        "half a length": b"\x10\0\0",
        "overlapping": _header({"a": tensor([4], 0, 16), "b": tensor([4], 8, 24)}, b"\0" * 24),
        "beyond the end": _header({"a": tensor([4], 0, 16)}, b"\0" * 4),
        "negative": _header({"a": tensor([-4], 0, 16)}, b"\0" * 16),
        "end before begin": _header({"a": tensor([4], 16, 0)}, b"\0" * 16),
        "absurd shape": _header({"a": tensor([2**62], 0, 16)}, b"\0" * 16),
        "shape that overflows": _header({"a": tensor([2**33, 2**33], 0, 0)}),
        "a hole": _header({"a": tensor([1], 8, 12)}, b"\0" * 12),
        "unknown type": _header({"a": {**tensor([4], 0, 16), "dtype": "F1"}}, b"\0" * 16),
        "deep": _header(b'{"a":' + b"[" * 100_000),
        "no JSON": _header(b"not json at all"),
        "not UTF-8": _header(b'{"\xff": 1}'),
        "a list": _header([1, 2]),
        "many names": _header({f"t{i}": tensor([0], 0, 0) for i in range(20_000)}),
    }
    for what, data in lies.items():
        yield what, lambda folder, data=data: (folder / WEIGHTS).write_bytes(data) and None  # type: ignore[misc]


CONFIGS: tuple[tuple[str, str, Any], ...] = (
    ("encoder", "embed_dim", 2**40),
    ("encoder", "embed_dim", 2**20),
    ("encoder", "depths", [10**9, 1, 1, 1]),
    ("encoder", "depths", [1] * 10**6),
    ("encoder", "window", 10**6),
    ("encoder", "spec_size", 10**9),
    ("encoder", "n_heads", [10**12] * 4),
    ("encoder", "patch", 0),
    ("encoder", "embed_dim", -8),
    ("encoder", "embed_dim", "eight"),
    ("encoder", "embed_dim", None),
    ("head", "d_out", 10**15),
    ("head", "d_in", 10**9),
    ("front_end", "n_samples", 10**15),
    ("front_end", "n_fft", 2**40),
    ("front_end", "n_mels", 10**12),
    ("front_end", "hop_length", 0),
    ("front_end", "sample_rate_hz", 10**18),
    ("front_end", "unknown", 1),
    ("", "format", "../../elsewhere"),
    ("", "encoder", "/etc/passwd"),
    ("", "encoder", {"kind": "../../elsewhere", "config": {}}),
    ("", "head", {"kind": "os.system", "config": {}}),
    ("", "text", {"kind": "hf", "config": {"name": "/etc", "auto_map": {"AutoModel": "x.Y"}}}),
    ("", "text", {"kind": "../x", "config": {}}),
    ("", "schema_version", 10**9),
)
TEXTS = ("[]", "null", "[" * 100_000, "{", '{"format": "residual-audio"}', '{"a": NaN}', "\0", "")


def _configs(room: Path) -> Iterator[tuple[str, Change]]:
    for part, key, value in CONFIGS:
        yield f"{part}.{key} = {str(value)[:30]}", partial(_set, part, key, value)
    for text in TEXTS:
        yield (
            f"config.json is {text[:10]!r}",
            lambda folder, text=text: (folder / "config.json").write_text(text) and None,  # type: ignore[misc]
        )
    remote = {"model_type": "clap", "auto_map": {"AutoModel": "code.Model"}}
    yield "remote code", partial(_remote, remote, room / "ran")


def _set(part: str, key: str, value: object, folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    inner = config if not part else config[part] if part == "front_end" else config[part]["config"]
    inner[key] = value
    path.write_text(json.dumps(config))


def _remote(config: dict[str, Any], mark: Path, folder: Path) -> None:
    """A checkpoint of another library that brings its own code."""
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(mark)!r}, 'w')\nclass Model: pass\n")


def _links(room: Path) -> Iterator[tuple[str, Change]]:
    secret = room / "secret.json"
    secret.write_text(json.dumps({"key": SECRET}))
    for name in ("config.json", WEIGHTS):
        for target in (secret, Path("/dev/zero"), Path("/dev/urandom"), room, Path("nowhere")):
            yield f"{name} → {target.name}", partial(_link, name, target)
        yield f"{name} is a pipe", partial(_pipe, name)


def _link(name: str, target: Path, folder: Path) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to(target)


def _pipe(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with suppress(OSError):
        os.mkfifo(folder / name)
