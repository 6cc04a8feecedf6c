"""constraints.txt: exact versions of everything that pyproject.toml asks for, inside its bounds."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def locked() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    assert all(mark == "==" for _, mark, _ in pins)
    assert [name for name, _, _ in pins] == [canonicalize_name(name) for name, _, _ in pins]
    return {name: Version(version) for name, _, version in pins}


def asked() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [r for extra in project["optional-dependencies"].values() for r in extra]
    found = [Requirement(r) for r in [*project["dependencies"], *extras]]
    return [each for each in found if each.name != project["name"]]


def test_all_that_is_asked_for_is_locked_inside_its_bounds(locked: dict[str, Version]) -> None:
    for each in asked():
        assert canonicalize_name(each.name) in locked, f"run `make lock`: {each.name} is missing"
        assert each.specifier.contains(locked[canonicalize_name(each.name)]), str(each)


def test_what_comes_along_is_locked_too(locked: dict[str, Version]) -> None:
    for name in ("transformers", "scikit-learn", "matplotlib", "peft", "onnxruntime"):
        for text in requires(name) or []:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert need.specifier.contains(locked[canonicalize_name(need.name)]), text


def test_torch_fits_every_build(locked: dict[str, Version]) -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "\ntorch==2.13.0\n" in text
    assert "+" not in text  # a local version would fit one build alone
    assert "--hash" not in text
    assert not re.search(r"^(nvidia|triton|cuda)", text, re.MULTILINE)


def test_oldest_versions_are_the_lower_bounds() -> None:
    call = [sys.executable, str(ROOT / "scripts" / "oldest.py"), "torch==2.13.0"]
    lines = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60).stdout
    oldest = {Requirement(line).name: Requirement(line) for line in lines.split()}
    assert str(oldest["torch"].specifier) == "==2.13.0"
    for each in asked():
        (lower,) = (s.version for s in each.specifier if s.operator == ">=")
        if each.name != "torch":
            assert oldest[each.name].specifier.contains(lower), str(each)
