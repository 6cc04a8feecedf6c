"""What a paper prints: the stage, block, ANOVA and pair tables, rounded as tables are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from residual_audio.files import write_text
from residual_audio.metrics.estimators import BY_NAME, PRINTED
from residual_audio.report.typesetting import latex, markdown, number, p_value
from residual_audio.table import Table


@dataclass(frozen=True)
class Printed:
    """A table of text, ready for Markdown and LaTeX."""

    name: str
    header: tuple[str, ...]
    latex_header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str

    def write(self, folder: Path) -> list[Path]:
        """`<name>.md` and `<name>.tex`."""
        return [
            write_text(folder / f"{self.name}.md", markdown(self.header, self.rows, self.caption)),
            write_text(
                folder / f"{self.name}.tex",
                latex(self.latex_header, self.rows, self.caption, f"tab:{self.name}"),
            ),
        ]


def stage_rows(stages: Table, prefix: str = "") -> Printed:
    """Mean ± standard deviation by stage; ties are rounded up."""
    shown = [estimator for estimator in PRINTED if f"{prefix}{estimator.name}_mean" in stages]
    rows = []
    for row in stages.rows():
        cells = [f"s{row['stage']}"]
        for estimator in shown:
            name, places = prefix + estimator.name, estimator.decimals
            mean, std = row[f"{name}_mean"], row[f"{name}_std"]
            cells.append(f"{number(mean, places)} ± {number(std, places)}")
        rows.append(tuple(cells))
    return Printed(
        f"{prefix}stages",
        ("Stage", *(estimator.label for estimator in shown)),
        ("Stage", *(estimator.heading for estimator in shown)),
        tuple(rows),
        stages.caption,
    )


def block_rows(blocks: Table) -> Printed:
    """L, N, L/N, EVR1 by block, deepest first, as in the published figure; ties to even."""
    rows = []
    for row in sorted(blocks.rows(), key=lambda r: -r["block_index"]):
        cells = [f"s{row['stage']}", str(row["block_index"]), str(row["n_heads"])]
        cells += [number(row[name], 2, ties="even") for name in ("L", "N", "L/N", "EVR1")]
        rows.append(tuple(cells))
    header = ("Stage", "Block", "Heads", "L", "N", "L/N", "EVR1")
    return Printed("blocks", header, header, tuple(rows), blocks.caption)


def anova_rows(statistics: Mapping[str, Any]) -> Printed:
    """F, p and η² of each metric over the stages (blocks, where there is one stage)."""
    found = statistics["metrics"]
    names = [name for name in BY_NAME if name in found]
    rows = []
    for name in names:
        test = found[name]["anova"]
        trend = found[name]["trend_with_block"]
        rows.append(
            (
                BY_NAME[name].label,
                number(test["f"], 1),
                p_value(test["p"]),
                number(test["eta_squared"], 2),
                number(trend["spearman"], 2),
                str(test["n"]),
            )
        )
    header = ("Metric", "F", "p", "η²", "ρ with depth", "Heads")
    return Printed(
        "anova",
        header,
        ("Metric", "$F$", "$p$", r"$\eta^2$", r"$\rho$ with depth", "Heads"),
        tuple(rows),
        f"One-way analysis of variance over {statistics['grouped_by']}s, and Spearman correlation "
        "with block depth.",
    )


def pair_rows(statistics: Mapping[str, Any], metric: str) -> Printed:
    """Stages (blocks, where there is one stage) compared two by two."""
    what = f"{statistics['grouped_by'].title()}s"
    rows = [
        (
            f"{pair['a']} vs {pair['b']}",
            number(pair["difference"], 2),
            number(pair["cohen_d"], 2),
            p_value(pair["tukey_p"]),
            p_value(pair["bonferroni_p"]),
            f"{pair['n_a']} / {pair['n_b']}",
        )
        for pair in statistics["metrics"][metric]["pairs"]
    ]
    return Printed(
        f"pairs_{metric}",
        (what, "Difference", "Cohen's d", "Tukey HSD p", "Welch p (Bonferroni)", "Heads"),
        (what, "Difference", "Cohen's $d$", "Tukey HSD $p$", "Welch $p$ (Bonferroni)", "Heads"),
        tuple(rows),
        f"{what} compared pairwise on {BY_NAME[metric].label}.",
    )


def attention_rows(stages: Table) -> Printed:
    """Attention maps by stage: dimension, spread, reach."""
    shown = [
        ("pr", "PR", 1),
        ("pca_99", "PCA 99%", 1),
        ("entropy", "Entropy (nats)", 2),
        ("distance", "Distance (tokens)", 2),
    ]
    shown = [entry for entry in shown if f"{entry[0]}_mean" in stages]
    rows = [
        (
            f"s{row['stage']}",
            *(
                f"{number(row[f'{name}_mean'], d)} ± {number(row[f'{name}_std'], d)}"
                for name, _, d in shown
            ),
            str(row["n_heads"]),
        )
        for row in stages.rows()
    ]
    header = ("Stage", *(text for _, text, _ in shown), "Heads")
    latex_header = tuple(text.replace("%", r"\%") for text in header)
    return Printed("attention_stages", header, latex_header, tuple(rows), stages.caption)


def fisher_rows(fisher: Table, n: int = 10) -> Printed:
    """The heads that separate the classes best: by held-out probe, by Fisher ratio without one."""
    columns = [("fisher_trace", "Fisher", 3), ("probe_accuracy", "Probe", 3),
               ("silhouette", "Silhouette", 3), ("selectivity", "Selectivity", 3)]  # fmt: skip
    columns = [c for c in columns if c[0] in fisher]
    judge = BY_NAME["probe_accuracy" if "probe_accuracy" in fisher else "fisher_trace"]
    best = fisher.top(judge.name, n)
    rows = [
        (
            row["head_id"],
            *(number(row[name], places) for name, _, places in columns),
            str(row["preferred_class"]).replace("_", " "),
        )
        for row in best.rows()
    ]
    header = ("Head", *(text for _, text, _ in columns), "Moved most by")
    caption = f"The {len(rows)} heads that separate the classes best, by {judge.label}."
    return Printed("fisher_top", header, header, tuple(rows), caption)
