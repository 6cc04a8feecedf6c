"""Tables on disk (CSV, Parquet) and in print (LaTeX, Markdown)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np

from residual_audio import files
from residual_audio.table import Table

NO_VALUE = "–"


def write_csv(path: Path, table: Table) -> Path:
    """Numbers in full, so that reading it back gives the same table; no value is an empty cell.

    In a column without any value the cells say "nan", or it would come back as text.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.columns)
    absent = {
        key: "nan" if values.dtype.kind == "f" and np.isnan(values).all() else ""
        for key, values in table.columns.items()
    }
    for row in table.rows():
        writer.writerow([_cell(value, absent[key]) for key, value in row.items()])
    return files.write_bytes(path, buffer.getvalue().encode())


def _cell(value: Any, absent: str) -> Any:
    if isinstance(value, float):
        return absent if np.isnan(value) else repr(value)
    if isinstance(value, bool):
        return int(value)
    return value


def write_parquet(path: Path, table: Table) -> Path:
    """Columns as they are; notes and caption travel in the metadata."""
    import pyarrow as pa

    arrays = {
        key: pa.array(values.tolist() if values.dtype == object else values)
        for key, values in table.columns.items()
    }
    found = pa.table(arrays).replace_schema_metadata(
        {"caption": table.caption, "notes": json.dumps(list(table.notes))}
    )
    return files.write_parquet(path, found)


def read_parquet(path: Path) -> Table:
    """What `write_parquet` wrote."""
    from pyarrow import parquet

    found = parquet.read_table(path)
    meta = {k.decode(): v.decode() for k, v in (found.schema.metadata or {}).items()}
    columns = {name: np.array(found[name].to_pylist()) for name in found.column_names}
    notes = tuple(json.loads(meta.get("notes", "[]")))
    return Table(path.stem, columns, meta.get("caption", ""), notes)


def number(value: float, decimals: int, ties: Literal["up", "even"] = "up") -> str:
    """A number in print. Ties of the shortest decimal form are rounded up, or to even."""
    value = float(value)
    if not np.isfinite(value):
        return NO_VALUE
    how = ROUND_HALF_UP if ties == "up" else ROUND_HALF_EVEN
    # 12 digits: a mean of two-decimal numbers is a tie even where its binary form is not quite one
    exact = Decimal(f"{value:.12g}")
    return str(exact.quantize(Decimal(1).scaleb(-decimals), rounding=how))


def p_value(p: float) -> str:
    """As papers print it."""
    if not np.isfinite(p):
        return NO_VALUE
    return "< 0.001" if p < 0.001 else number(p, 3)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A Markdown table; numbers to the right, the first column to the left."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |"

    rule = "| " + " | ".join("---" if i == 0 else "---:" for i in range(len(header))) + " |"
    text = "\n".join([line(header), rule, *(line(row) for row in rows)])
    return f"{caption}\n\n{text}\n" if caption else text + "\n"


_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{c: "\\" + c for c in "&%#_{}"},
    "$": r"\$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_LATEX_SYMBOLS = {"±": r"$\pm$", "–": "--", "<": "$<$", ">": "$>$", "×": r"$\times$", "≥": r"$\ge$"}


def latex_text(text: str) -> str:
    """Plain text, safe in LaTeX."""
    escaped = "".join(_LATEX_SPECIAL.get(c, c) for c in str(text))
    for symbol, command in _LATEX_SYMBOLS.items():
        escaped = escaped.replace(symbol, command)
    return escaped


def latex(
    header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", label: str = ""
) -> str:
    """A booktabs table. The header is LaTeX already; cells are escaped."""
    body = [" & ".join(latex_text(cell) for cell in row) + r" \\" for row in rows]
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        *([rf"\caption{{{latex_text(caption)}}}"] if caption else []),
        *([rf"\label{{{label}}}"] if label else []),
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        " & ".join(header) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
