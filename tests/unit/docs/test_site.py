"""The documentation builds offline, and nothing that people can call is missing from it."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import residual_audio as ra
from residual_audio.cli.app import COMMANDS

PROJECT = Path(__file__).resolve().parents[3]
pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    # a proxy that nobody answers: whatever tried to fetch something would fail
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")
    paths = {"PYTHONPATH": str(PROJECT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(out)]
    done = subprocess.run(
        call, cwd=PROJECT, env=os.environ | nowhere | paths, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_command_has_a_heading(site: Path) -> None:
    page = (site / "reference" / "commands.html").read_text()
    for name in COMMANDS:
        assert f'id="{name}"' in page, name
        assert f"residual-audio {name}" in html.unescape(page), name


def test_every_public_name_is_documented(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text()
    for name in dir(ra):
        if name != "__version__":
            assert re.search(rf"ra\.{name}\b", page), name


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        page = path.read_text()
        fetched = re.findall(r'<(?:script|img|iframe|link)[^>]+(?:src|href)="(https?:[^"]+)"', page)
        assert fetched == [], path.name


def test_every_figure_of_a_run_is_explained(site: Path) -> None:
    from residual_audio.report.figures import FIGURES

    page = (site / "explanation" / "figures.html").read_text()
    for name in FIGURES:
        assert f'id="{name}"' in page, name


def test_the_readme_leads_to_pages_that_exist() -> None:
    text = (PROJECT / "README.md").read_text()
    for target in re.findall(r"\]\(((?!http)[^)#]+)", text):
        assert (PROJECT / target).exists(), target
