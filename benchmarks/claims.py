"""Every claim of the sources beside what is measured here: docs/claims.md from its result files.

    python benchmarks/claims.py page                          writes docs/claims.md
    python benchmarks/claims.py measure RUN NAME [COMMAND …]  docs/results/claims/run_NAME.json
    python benchmarks/claims.py published TABLES              … run_published_esc50.json
    python benchmarks/claims.py cells REFERENCE SCORES        … cells.json
    python benchmarks/claims.py adapted RUN                   … adapted_orchestra.json
    python benchmarks/claims.py architecture REFERENCE        … architecture.json
    python benchmarks/claims.py compared NAME RUN RUN         … compared_NAME.json
    python benchmarks/claims.py curved RUN                    … curved.json
    python benchmarks/claims.py early_exit RUN                … early_exit.json
    python benchmarks/claims.py probes SCORES                 … probes.json
    python benchmarks/claims.py widths PLAIN WIDER ESC50      … widths.json

RUN is a run folder that `residual-audio extract`, `analyse` (and `ablate`) have filled. REFERENCE
is the folder with `published.json` and the official TinySOL index; SCORES one with results of
`residual-audio compa` and `probe`; TABLES what `residual-audio analyse --from-table` made of the
published table of heads.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from claims_kinds import Claim, OpenClaim, RunClaim, StudyClaim
from claims_measured import read_measured, write_measured, write_published
from claims_of_studies import SECTIONS
from claims_studies import STUDIES

from residual_audio.files import read_json, write_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "claims"
CAPTIONS = ROOT / "docs" / "results" / "residual" / "captions_esc50.json"
PAGE = ROOT / "docs" / "claims.md"
RUNS = {
    "run_published_esc50": "the source's own heads (CLAP)",
    "run_nano_esc50": "`nano`, ESC-50 fold 4",
    "run_nano_orchestra": "`nano`, orchestra",
    "run_whisper_esc50": "Whisper tiny.en",
    "run_random_esc50": "HTS-AT random",
    "run_whisper_random_esc50": "Whisper random",
}
"""Columns of the page: the source's own table of heads, trained models, random weights."""
MAIN, SECOND = "run_nano_esc50", "run_nano_orchestra"
SOURCE = "run_published_esc50"
RANDOM = "run_random_esc50"
OF_NANO = {"adapted_orchestra", "cells", "curved", "early_exit", "probes"}
"""Studies of the bundled model."""
WORDS = {True: "holds", False: "does not", None: "cannot be told"}
PLAIN = {"run_whisper_esc50", "run_whisper_random_esc50"}
"""Encoders without stages."""


def page(folder: Path = RESULTS) -> str:
    """The whole page as Markdown."""
    runs = read_measured(folder)
    studies = {p.stem: read_json(p) for p in folder.glob("*.json") if p.stem not in runs}
    studies["captions"] = read_json(CAPTIONS)
    parts, counted = [], Counter[str]()
    for title, claims in SECTIONS.items():
        rows = []
        for claim in claims:
            cells, verdict = _judge(claim, runs, studies)
            counted[verdict.split(" (")[0].split(";")[0]] += 1
            named = f"{claim.text} ({claim.source})"
            rows.append([named, claim.published, *cells, claim.rule, verdict])
        parts.append(_section(title, claims, rows, runs))
    return "\n\n".join([_head(runs, studies, counted), *parts, _commands(runs, studies)]) + "\n"


def _judge(
    claim: Claim, runs: Mapping[str, Any], studies: Mapping[str, Any]
) -> tuple[list[str], str]:
    """Cells of the row, and the verdict."""
    if isinstance(claim, OpenClaim):
        return [claim.reason], WORDS[None]
    if isinstance(claim, StudyClaim):
        if claim.result not in studies:
            return ["not measured yet"], WORDS[None]
        study = studies[claim.result]
        n = f" (n = {study['n']})" if "n" in study else ""
        return [claim.show(study)], WORDS[claim.holds(study)] + n
    assert isinstance(claim, RunClaim)
    known = {
        name: runs[name] for name in RUNS if name in runs and not (claim.staged and name in PLAIN)
    }
    cells = [_shown(claim, known[name]) if name in known else "–" for name in RUNS]
    return cells, _verdict(claim, known)


def _shown(claim: RunClaim, measured: Any) -> str:
    """A dash where a run does not have what the claim is about."""
    try:
        return claim.show(measured)
    except KeyError:
        return "–"


def _found(claim: RunClaim, measured: Any) -> bool | None:
    try:
        return claim.holds(measured)
    except KeyError:
        return None


def _verdict(claim: RunClaim, known: Mapping[str, Any]) -> str:
    """Of the trained model, with what the source's own heads, the second data set and random
    weights say by the same rule."""
    found = {name: _found(claim, m) for name, m in known.items()}
    main = known[MAIN]
    n = main["ablation"]["n"] if claim.ablated else main["n_clips"]
    said = WORDS[found[MAIN]] + f" (n = {n})"
    if SOURCE in found and _shown(claim, known[SOURCE]) != "–":
        said += f"; its own heads: {WORDS[found[SOURCE]]}"
    if SECOND in found and found[SECOND] not in (found[MAIN], None) and found[MAIN] is not None:
        said += "; otherwise on the orchestra"
    if found.get(RANDOM) and found[MAIN]:
        said += "; random weights show it too"
    return said


def _section(title: str, claims: Any, rows: list[list[str]], runs: Mapping[str, Any]) -> str:
    """Claims read from runs in one table, the others in another."""
    of_runs = [row for claim, row in zip(claims, rows, strict=True) if isinstance(claim, RunClaim)]
    others = [
        row for claim, row in zip(claims, rows, strict=True) if not isinstance(claim, RunClaim)
    ]
    columns = [
        f"{label} ({runs[name]['n_clips']} clips)" if name in runs else label
        for name, label in RUNS.items()
    ]
    parts = [f"## {title}"]
    if of_runs:
        parts.append(_table(["claim", "published", *columns, "rule", "verdict"], of_runs))
    if others:
        parts.append(_table(["claim", "published", "here", "rule", "verdict"], others))
    return "\n\n".join(parts)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _weights(runs: Mapping[str, Any], studies: Mapping[str, Any]) -> str:
    """Digest of `nano`'s weights → what was measured with them."""
    of: dict[str, list[str]] = {}
    for name, found in {**runs, **studies}.items():
        if "nano" in name or name in OF_NANO:
            of.setdefault(found.get("weights", "unknown")[:7], []).append(name)
    return "; ".join(f"`{digest}` ({', '.join(sorted(names))})" for digest, names in of.items())


def _head(runs: Mapping[str, Any], studies: Mapping[str, Any], counted: Counter[str]) -> str:
    n = sum(counted.values())
    holds, not_so, open_ = (counted[word] for word in WORDS.values())
    tally = f"{holds} hold for `nano`, {not_so} do not, {open_} cannot be told"
    main = runs[MAIN]
    return f"""# The claims of the sources, tested

The five documents behind this project (000 the Arcioni report, 001 its README, 002 the Paolini
report, 003 two posts, 004 a pipeline note) make claims about CLAP's audio encoder. Here each stands
beside its published number and what is measured here: {n} claims, {tally}.

What this page can and cannot say:

- A verdict is about `nano` and follows from the numbers by the rule in its row: *holds* where the
  rule is met, *does not* where its contrary is (what stands after "no:", or simply not), *cannot be
  told* otherwise. "Clearly" is a 95% interval clear of the limit. Tests over heads say how cleanly
  the stages of this model separate: its heads are all there are. Where a rule names no interval,
  the number itself decides.
- The released CLAP checkpoints cannot be had on the machine that made it, but the source published
  the numbers of its 184 heads (2,000 clips, two decimals): the same rules read them in a column of
  their own, and the verdict says what they give.
- `nano` is a small CLAP with the same 184 heads of width {main["d_head"]} instead of 24, trained on
  ESC-50 folds 1 to 3 and synthetic sounds; fold 4 and the orchestra are new to it. Weights:
  {_weights(runs, studies)}.
- Random weights are the baseline of every claim about dimension: what they show too was there
  before training. They are those of HTS-AT tiny (width 24) and of Whisper tiny.
- Whisper has no stages: its numbers are of its four blocks (heads of width 64), from 200 clips
  padded to 30 s, and padding shapes its geometry.
- Numbers of different widths and different n are not comparable; directions are.

Made by `python benchmarks/claims.py page` from `docs/results/claims/`; a test fails where a figure
here no longer matches its file."""


def _commands(runs: Mapping[str, Any], studies: Mapping[str, Any]) -> str:
    lines = ["## Commands", "", "```"]
    for name in RUNS:
        if name in runs:
            lines += [f"# {name}.json", *runs[name]["commands"], ""]
    for name, study in sorted(studies.items()):
        if "commands" in study:
            lines += [f"# {name}.json", *study["commands"], ""]
    lines += [
        "# ../residual/captions_esc50.json",
        shlex.join(studies["captions"]["provenance"]["command"]),
        "",
    ]
    return "\n".join([*lines[:-1], "```"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["page", "measure", "published", *STUDIES])
    parser.add_argument("given", nargs="*")
    asked = parser.parse_args()
    if asked.what == "page":
        print(write_text(PAGE, page()))
    elif asked.what == "published":
        print(write_published(Path(asked.given[0]), RESULTS))
    elif asked.what == "measure":
        run, name, *commands = asked.given
        print(write_measured(Path(run), f"run_{name}", RESULTS, commands))
    else:
        print(STUDIES[asked.what](RESULTS, *asked.given))


if __name__ == "__main__":
    main()
