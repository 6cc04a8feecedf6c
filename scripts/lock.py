"""Exact versions of everything the project and its extras install: `make lock`.

pip resolves the project with every extra into an empty place, without installing anything, and the
versions go into constraints.txt. What stands there already is kept unless `--upgrade` asks for the
newest; torch stays as it is in either case, and no hashes are written, so that PyTorch's CPU build
and the usual one both fit.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
STAYS = "torch==2.13.0"
HEAD = """\
# Exact versions for `make test` and `make demo`, written by `make lock`; not by hand.
"""


def main() -> None:
    """Resolve, and write constraints.txt."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--upgrade", action="store_true", help="the newest instead of what is there")
    upgrade = asked.parse_args().upgrade
    known = [] if upgrade or not CONSTRAINTS.is_file() else CONSTRAINTS.read_text().splitlines()
    pins = [line for line in known if line and not line.startswith(("#", "torch=="))]
    found = resolve([STAYS, *pins])
    lines = sorted(f"{name}=={version}" for name, version in found.items())
    CONSTRAINTS.write_text(HEAD + "\n".join(lines) + "\n")
    print(f"{len(lines)} versions in {CONSTRAINTS.name}")


def resolve(pins: list[str]) -> dict[str, str]:
    """Name → version of all that pip would install with every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ",".join(project["optional-dependencies"])
    with tempfile.TemporaryDirectory() as folder:
        kept, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        kept.write_text("\n".join(pins))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), "-c", str(kept)]
        subprocess.run([*command, f"{ROOT}[{extras}]"], check=True)
        items = json.loads(report.read_text())["install"]
    versions = {item["metadata"]["name"]: item["metadata"]["version"] for item in items}
    return {
        # torch 2.13.0+cpu is 2.13.0 to everybody else
        re.sub(r"[-_.]+", "-", name).lower(): version.partition("+")[0]
        for name, version in versions.items()
        if name != project["name"]
    }


if __name__ == "__main__":
    main()
