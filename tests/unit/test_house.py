"""What the architecture page says of the house is so."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import residual_audio
from residual_audio.adaptation.methods.registry import ENTRIES
from residual_audio.cli.app import COMMANDS
from residual_audio.data import registry as data_registry
from residual_audio.metrics.estimators import ESTIMATORS
from residual_audio.models.registry import FAMILIES
from residual_audio.report.figures import DRAWINGS

PACKAGE = Path(residual_audio.__file__).parent
PROJECT = Path(__file__).resolve().parents[2]
MODULES = {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
SKINS = ("cli", "surface")  # what people type, over the rooms below
# parts that several commands share
CLI_PARTS = {"__init__", "app", "inputs", "options", "output", "scores", "terminal"}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path, tree in MODULES.items():
        if path.parts[0] != "cli":
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    yield f"{path}:{node.lineno} {node.name}", node


def layers() -> list[list[str]]:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [
        [name.strip().removeprefix("residual_audio.") for name in layer.split("|")]
        for layer in contract["layers"]
    ]


def test_the_page_shows_the_floors_of_the_contract():
    page = (PROJECT / "docs" / "architecture.md").read_text()
    rows = page.split("<!-- layers -->")[1].split("## Nouns")[0].splitlines()
    shown = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in rows if row.startswith("| `")]
    assert shown == layers()


def test_every_room_stands_on_a_floor():
    rooms = {path.parts[0] for path in MODULES if len(path.parts) > 1}
    assert rooms <= {room for layer in layers() for room in layer}


def test_functions_can_be_seen_whole():
    long = [name for name, node in functions() if (node.end_lineno or 0) - node.lineno + 1 > 60]
    assert not long


def test_functions_take_at_most_eight_things():
    wide = [
        name
        for name, node in functions()
        if len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
        - (bool(node.args.args) and node.args.args[0].arg in ("self", "cls"))
        > 8
    ]
    assert not wide


def test_what_has_a_shape_has_a_type():
    """Any stands where a library hands us one or a stranger's file is read, and nowhere else."""
    loose, loose_results = [], []
    for path, tree in MODULES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if one.annotation is not None and re.search(
                    r"\bAny\b", ast.unparse(one.annotation)
                ):
                    loose.append(f"{path}:{node.lineno} {node.name}({one.arg})")
            if node.returns is not None and "dict[str, Any]" in ast.unparse(node.returns):
                loose_results.append(f"{path}:{node.lineno} {node.name}")
    assert len(loose) <= 100, loose
    assert len(loose_results) <= 50, loose_results


def test_files_hold_one_idea():
    assert not [
        str(path) for path in MODULES if len((PACKAGE / path).read_text().splitlines()) > 400
    ]


def test_a_class_name_stands_once():
    names = Counter(
        node.name
        for tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not [name for name, n in names.items() if n > 1]


def test_a_module_name_is_one_idea():
    """A command's file and a function's on the surface may be called like what they are a skin of,
    a room's central file like its room, and every list of names that a room knows is `registry`."""
    named: dict[str, list[str]] = {}
    for path in MODULES:
        if path.stem not in ("__init__", "__main__", "registry") and path.parts[0] not in SKINS:
            named.setdefault(path.stem, []).append(str(path))
    rooms = {str(parent) for path in MODULES for parent in path.parents} - {"."}
    for room in rooms:
        central = f"{room}/{Path(room).name}.py"
        named.setdefault(Path(room).name, []).append(room)
        named[Path(room).name] = [p for p in named[Path(room).name] if p != central]
    assert {name: places for name, places in named.items() if len(places) > 1} == {}


def test_no_room_is_called_by_a_word_that_means_nothing():
    meaningless = {"utils", "helpers", "misc", "common", "tools", "stuff"}
    assert not [str(p) for p in MODULES if meaningless & set(p.with_suffix("").parts)]


def test_every_data_set_is_registered_and_every_registered_one_is_there():
    with_card = {
        path.stem
        for path, tree in MODULES.items()
        if path.parts[0] == "data"
        and path.stem not in ("base", "registry")
        and _assigns(tree, "CARD")
    }
    assert with_card == set(data_registry.MODULES.values())


def test_every_command_is_registered_and_every_registered_one_is_there():
    files = {
        path.stem
        for path, tree in MODULES.items()
        if path.parts[0] == "cli" and (_assigns(tree, "app") or _defines(tree, "run"))
    }
    assert files - CLI_PARTS == set(COMMANDS.values())


def test_every_method_of_adaptation_is_registered():
    used = {type(entry.method).__module__.rpartition(".")[2] for entry in ENTRIES}
    fitting = {
        path.stem
        for path, tree in MODULES.items()
        if path.parts[:2] == ("adaptation", "methods") and path.stem != "method"
        for node in tree.body
        if isinstance(node, ast.ClassDef) and _defines(node, "fit")
    }
    assert fitting == used


def test_every_file_of_figures_is_drawn_from():
    drawn = {drawing.draw.__module__.rpartition(".")[2] for drawing in DRAWINGS}
    files = {p.stem for p in MODULES if p.parts[0] == "report" and p.stem.startswith("figures_")}
    assert files - drawn <= {"figures_evaluation"}  # drawn by commands that have no run


@pytest.mark.parametrize(
    "names",
    [
        [entry.key for entry in ENTRIES],
        [estimator.name for estimator in ESTIMATORS],
        [drawing.name for drawing in DRAWINGS],
        [family.module for family in FAMILIES.values()],
    ],
    ids=["methods", "estimators", "figures", "families"],
)
def test_a_name_in_a_registry_stands_once(names):
    assert len(set(names)) == len(names)


def _assigns(tree: ast.AST, name: str) -> bool:
    return any(
        isinstance(target, ast.Name) and target.id == name
        for node in ast.iter_child_nodes(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )


def _defines(tree: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.FunctionDef) and node.name == name
        for node in ast.iter_child_nodes(tree)
    )
