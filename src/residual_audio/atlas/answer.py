"""The answer first: a few sentences made from the tables, with numbers, intervals and limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from residual_audio.atlas.captions_piece import retrieval_sentence
from residual_audio.atlas.front_piece import FrontLine, front_piece
from residual_audio.audio.oddities import apart_from_padding
from residual_audio.files import read_json_object
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.results import read_result
from residual_audio.seals import prove_document, prove_file
from residual_audio.store import Store
from residual_audio.table import Table
from residual_audio.types import Result

STEPS = {"analyse", "ablate", "reweight", "evaluate", "retrieval", "listen"}


class AnswerLine(TypedDict):
    """A sentence or two with numbers and intervals, and what it is about in a word."""

    about: str
    text: str


class Answer(TypedDict):
    """What was found, and what limits it."""

    found: list[AnswerLine]
    limits: list[str]


def answer_of(run: Path, store: Store, tables: Tables) -> Answer:
    """Sentences about what was found, and about what limits it."""
    adapted = _table(tables, "adapted")
    moved = f"{_reweighting(adapted)} {_cost(adapted, front_piece(tables))}".strip()
    captions = retrieval_sentence(_table(tables, "retrieval_adapted"))
    if captions and not any(store.clips["label"]):  # then there is nothing to be right about
        moved = ""
    found = {
        "Accuracy": _accuracy(run),
        "Captions": captions,
        "Reweighting": moved,
        "Blocks": _blocks(tables),
        "Heads": _heads(tables),
    }
    return {
        "found": [{"about": k, "text": text} for k, text in found.items() if text],
        "limits": [_sentence(line) for line in _limits(run, store, tables)],
    }


def _sentence(text: str) -> str:
    """With a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _table(tables: Tables, name: str) -> Table | None:
    try:
        table = tables[name]
    except MissingTable:
        return None
    return table if len(table) else None


def zero_shot_result(run: Path) -> Result | None:
    """Zero-shot accuracy of a run, or that by class centroids, where it was measured."""
    found = [
        *(run / "results").glob("*zero-shot*.json"),
        *(run / "results").glob("*centroids*.json"),
    ]
    return read_result(min(found)) if found else None


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _points(value: float) -> str:
    text = f"{100 * value:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def _accuracy(run: Path) -> str:
    result = zero_shot_result(run)
    if result is None:
        return (
            "Accuracy was not measured: the clips have no labels, or too few sources to judge by."
        )
    top1 = result["top1"]
    chance = "" if top1.chance is None else f", against {_percent(top1.chance)} by chance"
    how = "Zero-shot" if result.task == "zero-shot" else "By centroids of classes in other folds"
    return (
        f"{how}, the right class comes first for {_percent(top1.value)} of {top1.n} clips "
        f"(95% interval {_percent(top1.low)} to {_percent(top1.high)}){chance}."
    )


def _reweighting(table: Table | None) -> str:
    if table is None or "gain" not in table:
        return "Reweighting was not tried."
    row = _main_row(table)
    if row is None:
        return "Reweighting was not tried."
    low, high = row["gain_low"], row["gain_high"]
    verdict = "helped" if low > 0 else "hurt" if high < 0 else "made no difference that can be told"
    text = (
        f"Reweighting components ({row['method']}, {int(row['parameters']):,} gains, on folds that "
        f"did not train them) {verdict}: {_points(row['gain'])} points "
        f"(95% interval {_points(low)} to {_points(high)}), to {_percent(row['top1'])}"
    )
    probes = [r for r in table.rows() if "probe" in r["key"] and np.isfinite(r["top1"])]
    probe = max(probes, key=lambda r: r["parameters"], default=None)
    return (
        f"{text}."
        if probe is None
        else (
            f"{text}; a linear probe with {int(probe['parameters']):,} numbers reaches "
            f"{_percent(probe['top1'])}."
        )
    )


def _main_row(table: Table) -> dict[str, Any] | None:
    """The method with most to move is the one that the project is about; none is picked by its
    score."""
    rows = [r for r in table.rows() if r["kind"] == "residual" and np.isfinite(r["gain"])]
    return max(rows, key=lambda r: r["parameters"], default=None)


NOT_ELSEWHERE = (
    "What that costs on other data was not measured in this run (`residual-audio reweight compare "
    "RUN --keep OTHER_RUN` does)."
)


def _cost(table: Table | None, front: list[FrontLine] | None) -> str:
    """What the same method loses on reference runs, and where all edits lie that were followed."""
    if table is None or "gain" not in table or (row := _main_row(table)) is None:
        return ""
    lost = float(row.get("lost", np.nan))
    found = []
    if np.isfinite(lost):
        reach = 1.96 * float(row["lost_error"])
        verdict = "neither loses nor gains what could be told"
        if abs(lost) > reach:
            verdict = "loses" if lost > 0 else "gains"
        found.append(
            f"On the reference runs that were given it {verdict}: accuracy there changes by "
            f"{_points(-lost)} points (95% interval {_points(-lost - reach)} to "
            f"{_points(-lost + reach)})."
        )
    if front:
        gained = [point[1] for line in front for point in line["points"]]
        given = [point[2] for line in front for point in line["points"]]
        families = ", ".join(line["family"] for line in front)
        found.append(
            f"Over {len(gained)} edits ({families}), none of them chosen, accuracy here changes by "
            f"{_points(min(gained))} to {_points(max(gained))} points while "
            f"{100 * min(given):.1f} to {100 * max(given):.1f} points are lost on reference clips."
        )
    return " ".join(found).replace("-", "−") if found else NOT_ELSEWHERE


def _blocks(tables: Tables) -> str:
    for method, how in (("exact", "by running the encoder without it"), ("direct", "direct path")):
        table = _table(tables, f"ablation_attention_{method}")
        if table is None:
            continue
        worst = min(table.rows(), key=lambda r: r["d_margin"])
        return (
            f"Of the attention blocks, {_name(worst['unit'])} matters most: without it "
            f"({how}) accuracy changes by {_points(worst['d_correct'])} points "
            f"(95% interval {_points(worst['d_correct_low'])} to "
            f"{_points(worst['d_correct_high'])}) and the "
            f"margin of the right answer by {worst['d_margin']:+.3f} "
            f"({worst['d_margin_low']:+.3f} to {worst['d_margin_high']:+.3f})."
        ).replace("-", "−")
    return ""


def _name(unit: str) -> str:
    return str(unit).removesuffix(".attention")


def _heads(tables: Tables) -> str:
    for method in ("exact", "direct", "first_order"):
        table = _table(tables, f"ablation_head_{method}")
        if table is None:
            continue
        heads = sorted(table.rows(), key=lambda r: r["d_margin"])
        clear = [r for r in heads if r["d_margin_high"] < 0]
        first, *others = heads[:3]
        names = ", ".join(str(r["unit"]) for r in (first, *others))
        accuracy = sum(r["d_correct_high"] < 0 or r["d_correct_low"] > 0 for r in heads)
        changes = (
            "no head changes" if not accuracy else
            "one head changes" if accuracy == 1 else f"{accuracy} heads change"
        )  # fmt: skip
        return (
            f"Right answers lean most on {names}: without the first their margin changes by "
            f"{_change(first)}. {len(clear)} of {len(heads)} heads have such an interval below "
            f"zero (about {round(0.025 * len(heads))} would by chance); {changes} the accuracy by "
            f"more than {int(first['n'])} clips can blur."
        )
    return ""


def _change(row: dict[str, Any]) -> str:
    value, low, high = (row[f"d_margin{end}"] for end in ("", "_low", "_high"))
    return f"{value:+.2g} (95% interval {low:+.2g} to {high:+.2g})".replace("-", "−")


def _limits(run: Path, store: Store, tables: Tables) -> list[str]:
    found = []
    if store.partial is not None:
        found.append(
            f"Partial: {store.partial.n_clips} of {store.partial.of} clips were asked for."
        )
    if store.heard_before and store.heard_before["note"]:
        found.append(store.heard_before["note"])
    if store.skipped:
        found.append(f"{len(store.skipped)} clips could not be read and were skipped.")
    odd, padding = apart_from_padding(store.remarks)
    found += padding
    if odd:
        found.append(f"{len(odd)} clips are hardly sound (silent, very short).")
    labels = [str(v) for v in store.clips["label"] if v is not None]
    if labels:
        counts = np.unique(labels, return_counts=True)[1]
        few, many = int(counts.min()), int(counts.max())
        found.append(
            f"{len(labels)} labelled clips in {len(counts)} classes, "
            f"{few if few == many else f'{few} to {many}'} a class: what is said of single classes "
            "rests on so few"
        )
    found += [*_too_small(run)]
    found += _record_limits(run, tables)
    found.append(
        "“Direct” means a head's own term in the pooled latent; what later blocks make of it is "
        "not in there. Components have no sign of their own: + and − are only two ends."
    )
    return found


def _record_limits(run: Path, tables: Tables) -> list[str]:
    """Steps that were left out, parts of the analysis that were not possible, block ablation."""
    found = []
    record: dict[str, Any] = (
        read_json_object(run / "run.json") if (run / "run.json").is_file() else {}
    )
    prove_document(record, run / "run.json")
    # what else a run warns of (clips, training data) the store has said already
    found += [
        f"Left out: {warning}"
        for warning in record.get("warnings", [])
        if str(warning).split(":")[0] in STEPS
    ]
    skipped = tables.statistics.get("skipped", {})
    found += [f"Not analysed: {part} ({why})" for part, why in skipped.items()]
    blocks, heads = (_table(tables, f"ablation_{n}") for n in ("attention_exact", "head_direct"))
    if blocks is not None and heads is not None and blocks["n"][0] < heads["n"][0]:
        found.append(
            f"Blocks were removed by running the encoder again, on {int(blocks['n'][0])} of "
            f"{int(heads['n'][0])} clips"
        )
    if _table(tables, "ablation_head_exact") is None and _table(tables, "ablation_head_direct"):
        found.append("Single heads were removed on the direct path only, not in the encoder.")
    return found


def _too_small(run: Path) -> Iterator[str]:
    """What cannot be told with so few clips, as the ablation has reckoned it."""
    path = run / "tables" / "interventions.json"
    about = read_json_object(prove_file(path)) if path.is_file() else {}
    for method in ("exact", "direct", "first_order"):
        notes = about.get(f"ablation_head_{method}", {}).get("notes", [])
        said = [str(note) for note in notes if str(note).startswith("the smallest change")]
        if said:
            yield f"Of single heads, {said[0]}"
            return
