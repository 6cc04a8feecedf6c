"""What `import residual_audio as ra` shows: complete, typed, with examples that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import residual_audio as ra

PROJECT = Path(__file__).resolve().parents[3]
DATA = {"Clip", "Gains", "Head", "Site", "Spectrum", "ResidualAudioError", "Dataset", "Store"}
"""Nouns that are handed out by functions whose examples show them."""


def listed() -> dict[str, str]:
    """Names of the type-checking block → the module they are from."""
    tree = ast.parse(Path(ra.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.asname or alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_name_is_typed_and_listed_in_order() -> None:
    assert listed() == ra._WHERE
    assert dir(ra) == sorted(["__version__", *ra._WHERE])
    for name in ra._WHERE:
        assert getattr(ra, name).__name__ == name


def test_a_folder_never_hides_a_function() -> None:
    importlib.import_module("residual_audio.patching")
    assert callable(ra.patching)


def test_importing_costs_nothing() -> None:
    code = "import sys, residual_audio; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(set(ra._WHERE) - DATA))
def test_examples_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    thing = getattr(ra, name)
    assert inspect.getdoc(thing)
    module = importlib.import_module(ra._WHERE[name])
    found = [
        test for test in doctest.DocTestFinder().find(thing, name, module=module) if test.examples
    ]
    assert found, f"ra.{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in found:
        runner.run(test)
    assert not runner.failures


def test_the_whole_surface_is_typed() -> None:
    file = PROJECT / "tests" / "typing" / "public_surface.py"
    used = {
        node.attr
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ra"
    }
    assert set(ra._WHERE) <= used
    call = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        str(PROJECT / "pyproject.toml"),
    ]
    done = subprocess.run(
        [*call, "--follow-imports=silent", str(file)], capture_output=True, text=True, cwd=PROJECT
    )
    assert done.returncode == 0, done.stdout
