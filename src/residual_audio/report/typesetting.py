"""Numbers and tables as papers print them: rounding, Markdown, LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import Literal

import numpy as np

NO_VALUE = "–"


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
