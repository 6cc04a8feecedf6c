"""Whether the shape of a joint space goes with scores, over models and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from residual_audio.errors import InputError
from residual_audio.files import write_json
from residual_audio.geometry.cells import Cells, cells_of_results, read_cells
from residual_audio.geometry.correlates import CorrelationStudy, ProbeCorrelation, correlate
from residual_audio.report.figures_evaluation import scatter
from residual_audio.report.style import save
from residual_audio.results import read_results, slug


@dataclass(frozen=True)
class ProbeStudy:
    """Every probe against every score over (model × benchmark) cells."""

    cells: Cells
    found: CorrelationStudy

    @property
    def by_score(self) -> dict[str, list[ProbeCorrelation]]:
        """Score → a correlation a probe."""
        rows: dict[str, list[ProbeCorrelation]] = {}
        for row in self.found.rows:
            rows.setdefault(row.score, []).append(row)
        return rows

    def document(self) -> dict[str, object]:
        """All of it as JSON can say it."""
        named = zip(self.cells.models, self.cells.benchmarks, strict=True)
        return {
            "n_cells": self.found.n_cells,
            "cells": [{"model": model, "benchmark": benchmark} for model, benchmark in named],
            "correlations": [asdict(row) for row in self.found.rows],
            "warnings": list(self.found.warnings),
        }

    def write(self, out: Path) -> None:
        """`study.json` and a picture a score."""
        write_json(out / "study.json", self.document())
        for name in self.by_score:
            save(scatter(self.cells, self.found, name), out / f"study_{slug(name)}.png")


def study_probes(
    sources: Sequence[Path] = (),
    *,
    table: Path | None = None,
    scores: Sequence[str] | None = None,
    probes: Sequence[str] | None = None,
    seed: int = 0,
) -> ProbeStudy:
    """Correlations over the cells of result files and folders, or of one table."""
    if (table is None) == (not sources):
        raise InputError("give either result files and folders, or --from-table FILE")
    if table is not None:
        cells = read_cells(table, scores=scores, probes=probes)
    else:
        cells = cells_of_results(list(read_results(list(sources)))).only(probes)
    return ProbeStudy(cells, correlate(cells, scores=scores, seed=seed))
