"""The page of measured ratios, from the JSON that `bench … --json` printed: one row a number."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from residual_audio.errors import InputError
from residual_audio.files import read_json

_BUSY = 0.75
"""Others' work for each core above which a ratio to a peer says little: the peer suffers more."""
# key in the file → what it is, and what is aimed at
_ROWS: dict[str, tuple[str, str]] = {
    "ratio": ("whole job over the peer's", ""),
    "forward_ratio": ("encoder over the peer's", ""),
    "front_end_ratio": ("front-end over the peer's", ""),
    "exact_ratio": ("exact ablation of all heads over full passes", "≥ 4"),
    "first_order_ratio": ("first-order ablation of all heads over full passes", "≥ 100"),
    "cosine_min": ("least cosine of embeddings, HTS-AT tiny", "≥ 0.9995"),
    "head_error_max": ("largest change of a head output, as a share", ""),
    "nano_answers_that_stay": ("zero-shot answers that stay (`nano`, synthetic sounds)", ""),
    "nano_change_twonn": ("median change of TwoNN over heads (`nano`)", ""),
    "nano_change_pr": ("median change of the participation ratio over heads (`nano`)", ""),
    "slowest_over_encoder": ("slowest other step of `run` over the encoder", "≤ 1"),
    "memory_growth": ("memory, most clips over fewest", "≤ 1.1"),
    "time_growth": ("processor time a clip, most clips over fewer", "≤ 1.1"),
    "store.clips": ("clips of the large store, 184 heads each", ""),
    "store.analyse_peak_mb": ("memory of its analysis, raw and projected, in MB", ""),
    "store.analyse_s": ("seconds of its analysis", ""),
    "store.verify_s": ("seconds to verify it", ""),
    "store.open_s": ("seconds to open it with its clip index", ""),
    "ray_two_over_one": ("two Ray workers over one", "≥ 1.8"),
}


class Machine(TypedDict):
    """Where and when something was measured."""

    date: str
    processor: str
    cores: int
    load: float
    """Programs that wanted a core at the time, this one included."""


def machine() -> Machine:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def speed_page(folder: Path) -> str:
    """Markdown of every known number of the files in `folder`, with machine, date and load."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"there are no result files in '{folder}': bench … --json makes them")
    lines = [
        "# Performance",
        "",
        "Made by `residual-audio bench page` from the files in `docs/results/speed/`;",
        "`bench … --json` makes those. Ratios are of one run each, ours and the peer's in turn.",
        "A ratio to a peer that was measured on a busy machine is marked: a peer suffers more",
        "from company.",
        "",
        "| file | what | measured | aim | machine | date | load |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for path in files:
        lines += _rows(path.name, read_json(path))
    return "\n".join(lines) + "\n"


def _value(found: Mapping[str, Any], key: str) -> Any:
    part, _, rest = key.partition(".")
    inner = found.get(part)
    return inner.get(rest) if rest and isinstance(inner, Mapping) else inner


def _rows(name: str, found: Any) -> list[str]:
    where = found.get("machine") if isinstance(found, Mapping) else None
    if not isinstance(where, Mapping):
        raise InputError(f"'{name}' does not say on which machine it was measured: measure again")
    busy = float(where["load"]) > 1 + _BUSY * int(where["cores"])
    place = f"{where['processor']}, {where['cores']} cores | {where['date']} | {where['load']}"
    rows = []
    for key, (what, aim) in _ROWS.items():
        value = _value(found, key)
        if not isinstance(value, int | float):
            continue
        of_peer = key.endswith("ratio") or key == "ray_two_over_one"
        mark = " (busy)" if busy and of_peer else ""
        bits = f" ({found['precision']})" if "precision" in found and of_peer else ""
        rows.append(f"| `{name}` | {what}{bits} | {value:.7g}{mark} | {aim} | {place} |")
    return rows
