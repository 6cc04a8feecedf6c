"""Extract, analyse, ablate, reweight, evaluate, retrieve, listen, report, atlas: any model, any
data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio.audio.oddities import apart_from_padding
from residual_audio.errors import ResidualAudioError
from residual_audio.files import write_json
from residual_audio.pipeline import work
from residual_audio.pipeline.run_settings import RunSettings
from residual_audio.pipeline.steps import Done, Steps, contents
from residual_audio.pipeline.workshop import Workshop
from residual_audio.progress import SILENT, Progress
from residual_audio.provenance import without_machine_paths
from residual_audio.seals import prove_file, sealed

if TYPE_CHECKING:
    from residual_audio.store import Store
    from residual_audio.types import Result


MOST_NAMED = 20
"""Clips named in a warning; `run.json` has them all."""


@dataclass(frozen=True)
class Step:
    """One step: its work, and which settings it rests on besides the store."""

    name: str
    work: Callable[[Workshop], Done]
    rests_on: tuple[str, ...] = ()
    wanted: Callable[[Workshop], bool] = lambda at: True
    """Whether the data ask for it; where not, nothing is missing."""


# in this order, after the extraction; a step that the model or the data do not allow is left out
STEPS = (
    Step("analyse", work.analyse_store, ("seed", "quick")),
    Step("ablate", work.ablate_store, ("seed", "quick", "n_exact")),
    Step("reweight", work.reweight_store, ("seed", "quick", "n_folds", "every_method")),
    Step("evaluate", work.evaluate_store, ("seed",)),
    Step("retrieval", work.retrieve_store, ("seed", "quick", "n_folds"), work.has_captions),
    Step("listen", work.listen_to_heads, ("n_previews",)),
)


PAGES = ("report", "atlas")


@dataclass(frozen=True)
class Finished:
    """What a run left behind."""

    page: Path
    """The atlas, or the report where there is no atlas."""
    zero_shot: Result | None
    """Of a model without a text side, by class centroids."""
    adapted: list[dict[str, str]]
    n_clips: int
    skipped: dict[str, str]
    left_out: dict[str, str]
    """Step → why it was not possible (no labels, no text side …)."""
    warnings: list[str]
    """What a reader of the numbers must know: also on the page."""


def run(settings: RunSettings, progress: Progress = SILENT) -> Finished:
    """Do every step that is not up to date; one that cannot be done says why, the rest goes on."""
    at = Workshop(settings, progress)
    progress.note(f"{'extract':9} {work.extract_store(at)}")
    progress.keeps(f"finished steps are kept in {at.out}, the same command goes on after them")
    steps = Steps(at.out, progress)
    store_now = contents(at.out / "store", "manifest.json")
    left_out: dict[str, str] = {}
    if settings.processes > 1 and "report" not in steps.lines:
        work.prepare_report()
    for step in STEPS:
        if not step.wanted(at):
            continue
        asked = {name: getattr(settings, name) for name in step.rests_on}
        try:
            steps.do(step.name, {"store": store_now, **asked}, lambda step=step: step.work(at))  # type: ignore[misc]
        except ResidualAudioError as error:
            steps.forget(step.name)
            left_out[step.name] = str(error)
            progress.note(f"{step.name:9} left out · {error}")
    write_json(at.out / "run.json", sealed(_record(at, steps, left_out)))
    drawn = contents(at.out, "run.json", "tables/*", "results/*.json", "previews/*")
    steps.do("report", drawn, lambda: work.write_report(at))
    page = _atlas(at, steps, left_out, {"store": store_now, "report": drawn})
    return Finished(
        page=page or at.out / "report.html",
        zero_shot=None if "evaluate" in left_out else _zero_shot(at.out),
        adapted=[] if "reweight" in left_out else _adapted(at.out),
        n_clips=len(at.store),
        skipped=at.store.skipped,
        left_out=left_out,
        warnings=_warnings(at.store, left_out),
    )


def _warnings(store: Store, left_out: dict[str, str]) -> list[str]:
    """What the model had heard before, which clips have no rows, which are hardly sound."""
    found = [store.heard_before["note"]] if store.heard_before else []
    found += [f"{step}: {why}" for step, why in left_out.items()]
    odd, padding = apart_from_padding(store.remarks)
    found += padding
    for title, clips in (("skipped", store.skipped), ("odd", odd)):
        found += [f"{title}: {name}: {why}" for name, why in list(clips.items())[:MOST_NAMED]]
        if len(clips) > MOST_NAMED:
            found.append(f"{title}: {len(clips) - MOST_NAMED:,} more clips, named in run.json")
    return [line for line in found if line]


def _atlas(
    at: Workshop, steps: Steps, left_out: dict[str, str], ground: dict[str, dict[str, str]]
) -> Path | None:
    """The atlas comes last, from all other files; without tables there is none."""
    ground["more"] = contents(at.out, "gains/*", "atlas-data/*", "atlas-data/sounds/*")
    try:
        steps.do("atlas", ground, lambda: work.write_head_atlas(at))
    except ResidualAudioError as error:
        steps.forget("atlas")
        left_out["atlas"] = str(error)
        at.progress.note(f"{'atlas':9} left out · {error}")
        return None
    return at.out / "atlas" / "index.html"


def _record(at: Workshop, steps: Steps, left_out: dict[str, str]) -> dict[str, object]:
    """`run.json`: what was asked, what was used, what was skipped and why."""
    store = at.store
    return {
        "model": without_machine_paths(at.settings.model),
        "dataset": at.settings.dataset,
        "n_clips": len(store),
        "n_skipped": len(store.skipped),
        "skipped": store.skipped,
        "n_heads": sum(site.n_heads for site in store.sites),
        "template": store.template if store.has_text else None,
        "sha256": store.model_info.sha256,
        **({"partial": asdict(store.partial)} if store.partial else {}),
        "warnings": _warnings(store, left_out),
        "remarks": store.remarks,
        "heard_before": store.heard_before,
        "asked": store.asked,
        # the pages show this record: it must not change by their own steps
        "steps": {name: line for name, line in steps.lines.items() if name not in PAGES},
        "provenance": store.provenance,
    }


def _zero_shot(out: Path) -> Result | None:
    from residual_audio.results import read_result

    found = [
        *(out / "results").glob("*zero-shot*.json"),
        *(out / "results").glob("*centroids*.json"),
    ]
    return read_result(min(found)) if found else None


def _adapted(out: Path) -> list[dict[str, str]]:
    import csv

    path = out / "tables" / "adapted.csv"
    if not path.is_file():
        return []
    with prove_file(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
