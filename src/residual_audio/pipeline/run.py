"""extract → analyse → ablate → reweight → evaluate → report, for any model and data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residual_audio import provenance
from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.files import write_json
from residual_audio.pipeline.previews import choose, write_previews
from residual_audio.pipeline.steps import Steps, contents

if TYPE_CHECKING:
    from residual_audio.data.base import Dataset
    from residual_audio.models.clap import AudioTextModel
    from residual_audio.store import Store
    from residual_audio.types import Result

CAPTURE = ("heads", "blocks", "stages", "direct", "moments", "attention", "tokens")
ADAPTED_LOG = "tables/adapted.csv"
QUICK_METHODS = ("ResiDual heads {3}", "ResiDual heads {0–3}", "coarse", "linear probe, joint")
Echo = Callable[[str], None]
Work = Callable[[], tuple[Iterable[Path], str]]


@dataclass(frozen=True)
class Job:
    """What to run."""

    model: str
    dataset: str
    out: Path
    root: Path | None = None
    data_options: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None
    device: str = "auto"
    batch_size: int = 8
    seed: int = 0
    n_folds: int = 5
    n_exact: int = 64
    """Clips on which blocks are also ablated exactly, by running the encoder again."""
    quick: bool = False
    """Only the main methods and parts, for a first look within two minutes."""
    progress: Callable[[int, int], None] | None = None


@dataclass
class Finished:
    """What a run left behind."""

    page: Path
    zero_shot: Result | None
    adapted: list[dict[str, Any]]
    n_clips: int
    skipped: dict[str, str]
    left_out: dict[str, str]
    """Step → why it was not possible (no labels, no text side …)."""


def run(job: Job, echo: Echo = lambda line: None) -> Finished:
    """Do every step that is not up to date; one that cannot be done says why, the rest goes on."""
    return _Run(job, echo).go()


class _Run:
    """One run under way: what is loaded is loaded once, and only if a step needs it."""

    def __init__(self, job: Job, echo: Echo) -> None:
        self.job = job
        self.out = job.out.expanduser()
        self.out.mkdir(parents=True, exist_ok=True)
        self.steps = Steps(self.out, echo)
        self.echo = echo
        self.left_out: dict[str, str] = {}
        self.zero_shot: Result | None = None
        self._model: AudioTextModel | None = None
        self._dataset: Dataset | None = None

    @property
    def model(self) -> AudioTextModel:
        if self._model is None:
            from residual_audio.models.registry import load_model

            self._model = load_model(self.job.model, self.job.device)
        return self._model

    @property
    def dataset(self) -> Dataset:
        if self._dataset is None:
            from residual_audio.data.registry import load_dataset

            self._dataset = load_dataset(self.job.dataset, self.job.root, **self.job.data_options)
        return self._dataset

    def go(self) -> Finished:
        store = self.extract()
        store_now = contents(self.out / "store", "manifest.json")
        ground = {"store": store_now, "seed": self.job.seed, "quick": self.job.quick}
        self.attempt("analyse", ground, lambda: self.analyse(store))
        self.attempt("ablate", ground | {"n_exact": self.job.n_exact}, lambda: self.ablate(store))
        self.attempt("reweight", ground | {"folds": self.job.n_folds}, lambda: self.reweight(store))
        self.attempt("evaluate", ground, lambda: self.evaluate(store))
        self.describe(store)
        drawn = contents(self.out, "run.json", "tables/*", "results/*.json", "previews/*")
        self.steps.do("report", drawn, self.report)
        return Finished(
            page=self.out / "report.html",
            zero_shot=self._result(),
            adapted=self._adapted(),
            n_clips=len(store),
            skipped=store.skipped,
            left_out=self.left_out,
        )

    def attempt(
        self, name: str, ground: Any, work: Callable[[], tuple[Iterable[Path], str]]
    ) -> None:
        """A step that this model or data set does not allow is left out, with the reason."""
        try:
            self.steps.do(name, ground, work)
        except ResidualAudioError as error:
            self.left_out[name] = str(error)
            self.echo(f"{name:9} left out · {error}")

    def extract(self) -> Store:
        from residual_audio.extraction.extraction import extract

        job = self.job
        kinds = list(CAPTURE)
        if not self.model.head.reads_latent:
            kinds.remove("direct")  # its joint embedding is not a function of the latent
        made = extract(
            self.model,
            self.dataset,
            self.out,
            capture=kinds,
            limit=job.limit,
            batch_size=job.batch_size,
            seed=job.seed,
            progress=job.progress,
        )
        state = f"{made.n_shards_made} shards made" if made.n_shards_made else "up to date"
        skipped = f", {len(made.skipped)} skipped" if made.skipped else ""
        self.echo(f"{'extract':9} {made.n_ok} clips{skipped}, {state}")
        return made.store

    def analyse(self, store: Store) -> tuple[list[Path], str]:
        from residual_audio.analysis.study import PARTS, Options, analyse
        from residual_audio.report.write import write_analysis

        parts = frozenset(PARTS) - ({"kernel", "intervals", "curves"} if self.job.quick else set())
        analysis = analyse(store, Options(parts=parts, seed=self.job.seed))
        written = write_analysis(analysis, self.out)
        n_heads = len(analysis.tables["heads"])
        return written, f"{n_heads} heads, {len(analysis.tables)} tables"

    def ablate(self, store: Store) -> tuple[list[Path], str]:
        from residual_audio.ablation.ablation import AblationSettings, ablate
        from residual_audio.ablation.interventions import interventions_on
        from residual_audio.passes.kept import load_passes
        from residual_audio.passes.loop import Hearing
        from residual_audio.report.write import write_tables

        quick = self.job.quick
        levels = ("head", "attention") if quick else ("head", "attention", "mlp", "stage")
        tables = ablate(interventions_on(store), AblationSettings(levels, curves=not quick))
        n = min(self.job.n_exact, len(store))
        if n:
            rows = np.linspace(0, len(store) - 1, n).round().astype(int)
            ids = [str(store.clips["id"][i]) for i in rows]
            heard = Hearing(store.run_info.long, batch_size=16)
            sha = store.model_info.sha256
            passes = load_passes(self.model, self.dataset, ids, heard, sha256=sha)
            exact = AblationSettings(("attention",), ("exact",), curves=False)
            tables += ablate(interventions_on(store, rows, passes=passes), exact)
        return write_tables(self.out, tables), f"{len(tables)} tables, blocks exactly on {n} clips"

    def reweight(self, store: Store) -> tuple[list[Path], str]:
        from residual_audio.adaptation.study import adapt
        from residual_audio.report.write import write_tables
        from residual_audio.results import write_result
        from residual_audio.reweight.gain_files import save_gains

        quick = self.job.quick
        found = adapt(
            store,
            n_folds=self.job.n_folds,
            seeds=(self.job.seed,),
            names=QUICK_METHODS if quick else None,
            retention=not quick,
        )
        written = write_tables(self.out, found.tables)
        written.append(write_result(found.result, self.out / "results"))
        for name, gains in found.gains.items():
            written.append(save_gains(gains, self.out / "gains" / f"direct-fold-{name}"))
        return written, f"{len(found.rows)} methods on grouped folds"

    def evaluate(self, store: Store) -> tuple[list[Path], str]:
        from residual_audio.evaluation.zero_shot import evaluate_store
        from residual_audio.results import write_result

        result = evaluate_store(store, seed=self.job.seed)
        items = result.per_item or {}
        correct = [a == b for a, b in zip(items["label"], items["predicted"], strict=True)]
        shown = [
            {
                "id": items["id"][i],
                "label": items["label"][i],
                "prediction": items["predicted"][i],
                "score": items["probability"][i] if correct[i] else None,
            }
            for i in choose(correct, 8, self.job.seed)
        ]
        written = [write_result(result, self.out / "results")]
        written += write_previews(self.out, self.dataset, shown)
        top1 = result["top1"]
        line = f"zero-shot top-1 {top1.value:.1%} [{top1.low:.1%}, {top1.high:.1%}], n = {top1.n}"
        return written, line

    def describe(self, store: Store) -> None:
        """`run.json`: what was asked, what was used, what was skipped and why."""
        asked = store.manifest["asked"]
        partial = store.manifest.get("partial")
        write_json(
            self.out / "run.json",
            {
                "model": self.job.model,
                "dataset": self.job.dataset,
                "n_clips": len(store),
                "n_skipped": len(store.skipped),
                "skipped": store.skipped,
                "n_heads": sum(site.n_heads for site in store.sites),
                "template": store.template if store.has_text else None,
                "sha256": store.manifest["model"]["sha256"],
                **({"partial": partial} if partial else {}),
                "warnings": [f"{step}: {why}" for step, why in self.left_out.items()],
                "asked": asked,
                "steps": {
                    name: step["line"]
                    for name, step in self.steps.record.items()
                    if name != "report"  # the page shows this record: it must not change by it
                },
                "provenance": store.manifest.get("provenance") or provenance.collect(),
            },
        )

    def report(self) -> tuple[list[Path], str]:
        from residual_audio.report.figures import draw_all
        from residual_audio.report.page import write_page

        drawn = draw_all(self.out)
        page = write_page(self.out)
        n_figures = sum(path.suffix == ".png" for path in drawn)
        return [*drawn, page], f"{n_figures} figures and {page.name}"

    def _result(self) -> Result | None:
        from residual_audio.results import read_result

        found = sorted((self.out / "results").glob("*zero-shot*.json"))
        return read_result(found[0]) if found and "evaluate" not in self.left_out else None

    def _adapted(self) -> list[dict[str, Any]]:
        import csv

        path = self.out / ADAPTED_LOG
        if not path.is_file() or "reweight" in self.left_out:
            return []
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def check_folder(folder: Path) -> None:
    """A folder of class sub-folders, or an error that says what was found instead."""
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder")
    if not any(path.is_dir() for path in folder.iterdir()):
        raise InputError(f"'{folder}' has no sub-folders: put each class into one of its own")
