"""The oldest versions that pyproject.toml allows, as constraints for pip: `make test-oldest`.

`name>=1.2,<2` becomes `name==1.2`, for the requirements themselves and every extra; what they
bring along is pip's choice. An argument (`torch==2.13.0`) replaces one line, for machines that
cannot have an old build.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Print one line a requirement that has a lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    bounds: dict[str, str] = {}
    for requirement in [*project["dependencies"], *(r for extra in extras for r in extra)]:
        found = re.fullmatch(r"([\w.-]+)(\[[\w,]+\])?>=([\d.]+)(,.*)?", requirement)
        if found is None:
            continue
        bounds[found[1]] = f"{found[1]}=={found[3]}"
    for given in sys.argv[1:]:
        bounds[given.partition("==")[0]] = given
    print("\n".join(bounds.values()))


if __name__ == "__main__":
    main()
