"""Everybody can use the atlas: axe-core, contrast, names, and the width of a phone."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from atlas_browser import Page

pytestmark = pytest.mark.browser
READABLE = (Path(__file__).parent / "readable.js").read_text()
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
VIEWS = ("#map", "#map?view=pair", "#s3.b0.h0", "#clip/1", "#clips", "#move")
# `preload` would fetch the style sheet, which the policy of the page does not allow
RUN_AXE = """() => axe.run(document, { preload: false }).then((found) => found.violations
  .filter((v) => ['serious', 'critical'].includes(v.impact))
  .map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120)).join(' | ')}`))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
def test_every_view_can_be_read_and_used(browser: Any, run: Path, scheme: str, width: int):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = Page(context, run)
    found: dict[str, object] = {}
    for address in VIEWS:
        drawn = page.go(address)
        if address == VIEWS[0]:
            drawn.evaluate(AXE)  # as a debugger would, past the policy of the page
        found[address] = drawn.evaluate(RUN_AXE) + drawn.evaluate(READABLE)
        wide = drawn.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{address} is {wide} pixels wider than the screen"
    context.close()
    assert {address: wrong for address, wrong in found.items() if wrong} == {}
    assert page.wrong == []


def test_axe_would_find_what_is_wrong(browser: Any, run: Path):
    context = browser.new_context()
    drawn = Page(context, run).go("#map")
    drawn.evaluate(AXE)
    drawn.evaluate("() => document.querySelector('#metric').removeAttribute('id')")
    drawn.evaluate("() => document.querySelector('main').append(document.createElement('button'))")
    assert any(wrong.startswith("button-name") for wrong in drawn.evaluate(RUN_AXE))
    context.close()
