"""One browser and two small runs for all tests of this folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atlas_browser import Page
from atlas_run import make_run, shared_run
from small_run import small_dataset

from residual_audio.benchmarks.faults.hostile_pages import hostile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if sync_playwright is None or CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("chromium and playwright are not here, and these tests do not skip in CI")
        pytest.skip("chromium or playwright is not installed")
    with sync_playwright() as play:
        opened = play.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"],
            timeout=60_000,
        )
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_run(tmp_path_factory, "atlas-run", make_run)


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(out: Path) -> Path:
        return make_run(out, hostile(small_dataset()), seed=1, gains=False)

    return shared_run(tmp_path_factory, "hostile-run", make)


@pytest.fixture
def opened(browser: Any, run: Path) -> Iterator[Page]:
    """The atlas of a run, on which nothing may go wrong and which nothing may leave."""
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    page = Page(context, run)
    yield page
    context.close()
    assert page.wrong == []
    assert page.left == []
