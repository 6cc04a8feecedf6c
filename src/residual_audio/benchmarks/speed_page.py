"""The page of measured ratios, from the JSON that `bench … --json` printed: one row a number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from residual_audio.errors import InputError
from residual_audio.files import read_json

_BUSY = 0.15
"""Cores taken by others above which a ratio to a peer says little: the peer suffers more."""


class _Row(NamedTuple):
    """One number of a kind of file."""

    bench: str
    key: str
    what: str
    aim: str = ""
    of_peer: bool = False


_ROWS = (
    _Row("encode float32", "ratio", "files to embeddings with 184 heads, over transformers",
         "≥ 2.2", True),
    _Row("encode float32", "forward_ratio", "… the encoder alone", of_peer=True),
    _Row("encode float32", "front_end_ratio", "… the front-end alone", of_peer=True),
    _Row("encode float32", "kernels_ratio",
         "… were the encoder's products and attention all there is to do (a bound)", of_peer=True),
    _Row("encode bf16", "ratio", "the same with products in bfloat16, the peer in float32",
         "≥ 3.0", True),
    _Row("encode bf16", "forward_ratio", "… the encoder alone", of_peer=True),
    _Row("encode bf16", "kernels_ratio",
         "… were the encoder's products and attention all there is to do (a bound)", of_peer=True),
    _Row("encode bf16", "cosine_min", "least cosine of embeddings, HTS-AT tiny", "≥ 0.9995"),
    _Row("encode bf16", "head_error_max", "largest change of a head output, as a share"),
    _Row("encode bf16", "nano_answers_that_stay",
         "zero-shot answers that stay (`nano`, synthetic sounds)"),
    _Row("encode bf16", "nano_change_twonn", "median change of TwoNN over heads (`nano`)"),
    _Row("encode bf16", "nano_change_pr",
         "median change of the participation ratio over heads (`nano`)"),
    _Row("analyse", "ratio", "dimensions of 184 heads, over scikit-learn + scikit-dimension",
         "≥ 30", True),
    _Row("intervene", "exact_ratio", "exact ablation of all heads, over full passes", "≥ 4", True),
    _Row("intervene", "first_order_ratio", "first-order ablation of all heads, over full passes",
         "≥ 100", True),
    _Row("intervene", "patching_exact_ratio", "exact exchange of all heads, over full passes",
         "≥ 2.3", True),
    _Row("intervene", "patching_attribution_ratio", "… by attribution", "≥ 40", True),
    _Row("run", "n_clips", "clips of the whole `run`, real tiny size"),
    _Row("run", "slowest_over_encoder", "its slowest other step over the encoder", "≤ 1"),
    *(
        _Row("run", f"steps.{step}.cpu_s", f"… processor seconds of `{step}`")
        for step in ("extract", "analyse", "ablate", "reweight", "listen", "report", "atlas")
    ),
    _Row("demo", "seconds", "seconds of the demo", "≤ 45"),
    _Row("demo", "steps.report", "… of which the figures of the page", "≤ 5.7"),
    _Row("growth", "runs.-1.clips", "most clips extracted from tar shards"),
    _Row("growth", "memory_growth", "memory, most clips over fewest", "≤ 1.1"),
    _Row("growth", "time_growth", "processor time a clip, most clips over fewer", "≤ 1.1"),
    _Row("growth", "index.clips", "clips of the index that is written and read"),
    _Row("growth", "index.write_s", "seconds to write it"),
    _Row("growth", "index.read_s", "seconds to read it"),
    _Row("growth", "store.clips", "clips of the large store, 184 heads each"),
    _Row("growth", "store.store_gb", "its size in GB"),
    _Row("growth", "store.manifest_mb", "its manifest in MB"),
    _Row("growth", "store.analyse_s", "seconds of its analysis, raw and projected"),
    _Row("growth", "store.analyse_peak_mb", "memory of that in MB"),
    _Row("growth", "store.searched", "clips of the declared sample that neighbours are sought in"),
    _Row("growth", "store.verify_s", "seconds to verify it"),
    _Row("growth", "store.open_s", "seconds to open it with its clip index"),
    _Row("growth", "ray_two_over_one", "two Ray workers over one (the load is theirs, too)",
         "≥ 1.8"),
)  # fmt: skip


def speed_page(folder: Path) -> str:
    """Markdown of every known number of the files in `folder`, with machine, date and load."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"there are no result files in '{folder}': bench … --json makes them")
    found = {path.name: read_json(path) for path in files}
    for name, value in found.items():
        if not (isinstance(value, Mapping) and isinstance(value.get("machine"), Mapping)):
            raise InputError(
                f"'{name}' does not say on which machine it was measured: measure again"
            )
    lines = [
        "# Performance",
        "",
        "Made by `residual-audio bench page` from the files in `docs/results/speed/`, which",
        "`residual-audio bench … --json` prints; each holds its command. A ratio is of one run,",
        "ours and the peer's in turn. Load is how many cores other programs kept busy meanwhile; a",
        "ratio to a peer with more than 0.15 of that is marked: a peer suffers more from company.",
        "",
        "| what | measured | aim | reached | machine | date | load | file |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in _ROWS:
        for name, value in found.items():
            if value.get("bench") == row.bench:
                lines += _line(row, name, value)
    return "\n".join(lines) + "\n"


def _value(found: Any, key: str) -> Any:
    """The value at a path of names and numbers."""
    for part in key.split("."):
        if isinstance(found, list):
            found = found[int(part)] if found else None
        else:
            found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _line(row: _Row, name: str, found: Mapping[str, Any]) -> list[str]:
    value = _value(found, row.key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return []
    where = found["machine"]
    mark = " (busy)" if row.of_peer and float(where["load"]) > _BUSY else ""
    digits = 7 if 0.99 < value < 1 else 4  # of a cosine, what it lacks
    shown = f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"
    place = f"{where['processor']}, {where['cores']} cores"
    cells = [
        row.what, shown + mark, row.aim, _reached(value, row.aim), place, where["date"],
        where["load"], f"`{name}`",
    ]  # fmt: skip
    return ["| " + " | ".join(str(cell) for cell in cells) + " |"]


def _reached(value: float, aim: str) -> str:
    if not aim:
        return ""
    sign, bound = aim.split()
    good = value >= float(bound) if sign == "≥" else value <= float(bound)
    return "yes" if good else "no"
