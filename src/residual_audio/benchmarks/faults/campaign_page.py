"""What campaigns found, as a table on a page: from the files they kept, never by hand."""

from __future__ import annotations

from pathlib import Path

from residual_audio.errors import InputError
from residual_audio.files import read_json_object, write_text

BEGIN, END = "<!-- campaigns -->", "<!-- end of campaigns -->"


def campaign_table(folder: Path) -> str:
    """Those in a folder that were run whole, by name."""
    found = [read_json_object(path) for path in sorted(folder.glob("*.json"))]
    whole = [one for one in found if one["complete"] and not one["quick"]]
    rows = [
        f"| {one['name']} | {one['promise']} | {one['tried']:,} | {one['held']:,} |"
        for one in whole
    ]
    tried, held, seconds = (
        sum(one[name] for one in whole) for name in ("tried", "held", "seconds")
    )
    took = f"the cases took {seconds / 60:.0f} minutes"
    total = f"{len(whole)} campaigns: {tried:,} tried, {held:,} held; {took}."
    head = ["| campaign | promise | tried | held |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows, "", total])


def write_campaigns(folder: Path, page: Path) -> Path:
    """Put the table between the marks of a page."""
    before, begun, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise InputError(f"'{page}' has no place for the table: {BEGIN} and {END}")
    return write_text(page, f"{before}{BEGIN}\n\n{campaign_table(folder)}\n\n{END}{after}")
