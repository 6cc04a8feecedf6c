"""README.md of a model that is handed out: front-matter for the Hub, and what a reader asks first.

Scores stand in the front-matter as the Hub's evaluation results (`model-index`) and in a table with
n, interval and chance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio.files import harmless, write_text
from residual_audio.types import Result, Score

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

CARD = "README.md"
RECORD = "residual_audio.json"
"""What was done to which weights."""
UNKNOWN = "unknown"
_LIBRARIES = {"hf": "transformers", "peft": "peft", "onnx": "onnx", "laion": "laion-clap"}
_NAMELESS = ("manifest", "folder", "files")
"""Data sets of one's own, which nobody else knows by a name."""
_OPENS = {
    "hf": 'from transformers import ClapModel\n\nmodel = ClapModel.from_pretrained("{out}")',
    "laion": 'import residual_audio as ra\n\nmodel = ra.load_model("laion:{out}")',
    "native": 'import residual_audio as ra\n\nmodel = ra.load_model("{out}")',
    "peft": (
        "from peft import PeftModel\nfrom transformers import ClapModel\n\n"
        'base = ClapModel.from_pretrained("{base}")\n'
        'model = PeftModel.from_pretrained(base, "{out}")'
    ),
    "onnx": 'import onnxruntime\n\nsession = onnxruntime.InferenceSession("{out}/model.onnx")',
}


@dataclass(frozen=True)
class CardFacts:
    """What a card says."""

    name: str
    base: str
    """The repository or the file that it was made from."""
    layout: str
    change: str
    """One sentence: what was done to the base."""
    licence: str | None
    """The base's, which is inherited; None where it is not known."""
    has_text: bool = True
    datasets: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()


def beside(out: Path, name: str) -> Path:
    """A file that goes with an export: in its folder, or next to it under its name."""
    return out / name if out.is_dir() else out.with_name(f"{out.stem}.{name}")


def write_card(facts: CardFacts, path: Path) -> Path:
    """The card as a file."""
    return write_text(path, model_card(facts))


def model_card(facts: CardFacts) -> str:
    """Front-matter and text."""
    said = {part: harmless(getattr(facts, part)) for part in ("name", "base", "change")}
    opens = _OPENS[facts.layout].format(out=said["name"], base=said["base"])
    licence = (
        f"The licence is that of the base model: `{facts.licence}`."
        if facts.licence
        else "The licence of the base model holds; it is not known here, look it up before use."
    )
    lines = [
        f"---\n{_front_matter(facts)}\n---\n",
        f"# {said['name']}\n",
        f"{said['change']} Written by [ResiDual Audio]"
        "(https://github.com/residual-audio/residual-audio); what exactly was done is in "
        "`residual_audio.json`.\n",
        f"```python\n{opens}\n```\n",
        f"{licence}\n",
    ]
    if facts.results:
        lines += ["## Scores\n", *_score_lines(facts.results), "", *_notes(facts.results)]
    return "\n".join(lines)


def _front_matter(facts: CardFacts) -> str:
    from huggingface_hub import ModelCardData

    known = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", facts.base) is not None
    data = ModelCardData(
        base_model=facts.base if known else None,
        library_name=_LIBRARIES.get(facts.layout, "residual-audio"),
        pipeline_tag="zero-shot-audio-classification" if facts.has_text else "feature-extraction",
        datasets=[harmless(name) for name in facts.datasets if name not in _NAMELESS] or None,
        license=facts.licence or "other",
        license_name=None if facts.licence else UNKNOWN,
        base_model_relation="adapter" if facts.layout == "peft" else "finetune",
        tags=["residual-audio", "clap", "audio"],
        model_name=facts.name,
        eval_results=list(_evaluations(facts.results)) or None,
    )
    return str(data.to_yaml()).strip()


def _evaluations(results: Sequence[Result]) -> Iterator[EvalResult]:
    from huggingface_hub import EvalResult

    for result in results:
        for score in result.scores:
            of_base = score.name.endswith(("_before", "_gain"))  # said in the table alone
            if math.isfinite(score.value) and not of_base:
                yield EvalResult(
                    task_type="zero-shot-audio-classification",
                    task_name=result.task,
                    dataset_type=result.dataset,
                    dataset_name=result.dataset,
                    dataset_split=result.split,
                    metric_type="accuracy" if score.name.startswith("top1") else score.name,
                    metric_name=f"{score.name} ({_told(score)})",
                    metric_value=round(float(score.value), 6),
                )


def _told(score: Score) -> str:
    parts = [f"n {score.n}"]
    if math.isfinite(score.low) and math.isfinite(score.high):
        parts.insert(0, f"95% interval {score.low:.4g} to {score.high:.4g}")
    if score.chance is not None:
        parts.append(f"chance {score.chance:.4g}")
    return ", ".join(parts)


def _score_lines(results: Sequence[Result]) -> Iterator[str]:
    yield "| task | data | score | value | 95% interval | n | chance |"
    yield "| --- | --- | --- | ---: | --- | ---: | ---: |"
    for result in results:
        for score in result.scores:
            has = math.isfinite(score.low) and math.isfinite(score.high)
            interval = f"{score.low:.4g} to {score.high:.4g}" if has else "–"
            chance = "–" if score.chance is None else f"{score.chance:.4g}"
            cells = (result.task, f"{result.dataset} ({result.split})", score.name)
            told = " | ".join(harmless(cell).replace("|", "/") for cell in cells)
            yield f"| {told} | {score.value:.4g} | {interval} | {score.n} | {chance} |"


def _notes(results: Sequence[Result]) -> Iterator[str]:
    """What takes worth from a score: clips that the model had heard before."""
    for result in results:
        if note := (result.details.get("heard_before") or {}).get("note"):
            yield f"Of {harmless(result.dataset)}: {harmless(str(note))}.\n"
