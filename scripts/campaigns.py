"""The table of campaigns in docs/promises.md, from the outcomes in docs/results/faults.

residual-audio bench faults --keep docs/results/faults
python scripts/campaigns.py
"""

from __future__ import annotations

import json
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- campaigns -->", "<!-- end of campaigns -->"


def rows() -> list[str]:
    """One line a campaign that was run to its end."""
    found = [json.loads(path.read_text()) for path in sorted(DOCS.glob("results/faults/*.json"))]
    return [
        f"| {one['name']} | {one['promise']} | {one['tried']:,} | {one['held']:,} |"
        for one in found
        if one["complete"] and not one["quick"]
    ]


def main() -> None:
    page = DOCS / "promises.md"
    head, _, rest = page.read_text().partition(BEGIN)
    table = ["| campaign | promise | tried | held |", "| --- | --- | --- | --- |", *rows()]
    page.write_text("\n".join([f"{head}{BEGIN}", "", *table, "", END]) + rest.partition(END)[2])


if __name__ == "__main__":
    main()
