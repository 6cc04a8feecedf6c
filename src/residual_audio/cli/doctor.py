"""`residual-audio doctor`: what this machine has, and what is missing for which extra."""

from __future__ import annotations

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table, say


def run(json: options.Json = False) -> None:
    """Versions, device, threads, caches, offline state and optional parts."""
    from residual_audio.models.doctor import examine

    found = examine()
    if json:
        print_json(found)
        return
    rows = []
    for section, values in found.items():
        if section == "extras":
            continue
        for i, (key, value) in enumerate(values.items()):
            rows.append([section if i == 0 else "", key, str(value)])
    print_table(["", "", ""], rows)
    rows = [
        [extra, ", ".join(state["missing"]) or "installed", state["purpose"]]
        for extra, state in found["extras"].items()
    ]
    print_table(["extra", "missing", "for"], rows)
    for problem in found["problems"].values():
        say(f"problem: {problem}", err=True)
