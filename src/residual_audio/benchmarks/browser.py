"""How quick an atlas is in a browser: opening it, a head's page, a step of a slider."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from residual_audio.errors import InputError, MissingExtraError
from residual_audio.progress import SILENT, Progress

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class AtlasTimes(TypedDict):
    """Best of several, in milliseconds."""

    open_ms: float
    """From asking for the page to the map drawn."""
    head_ms: float
    """From one head's page to the next, its data loaded from disk."""
    slider_ms: float
    """All scores, accuracy, confusion and embeddings again."""
    n_clips: int
    n_heads: int
    megabytes: float


def bench_atlas(run: Path, repeats: int = 5, progress: Progress = SILENT) -> AtlasTimes:
    """Measure the atlas of a run with Chromium, from the file system."""
    page = run / "atlas" / "index.html"
    if not page.is_file():
        raise InputError(f"'{run}' has no atlas: make it with `residual-audio atlas {run}`")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise MissingExtraError("playwright", "dev", "measuring a page") from None
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    progress.step("atlas", 3 * repeats, "times")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        url = page.resolve().as_uri()

        def best(measure: Callable[[int], float]) -> float:
            times = []
            for i in range(repeats):
                times.append(measure(i))
                progress.advance()
            return round(min(times), 1)

        opened = best(lambda _: _open_ms(browser, url))
        tab = _opened(browser, url)
        heads, n_clips = tab.evaluate("[RA.main.heads.id, RA.main.n_clips]")
        head = best(lambda i: _head_ms(tab, heads[-1 - i % len(heads)]))
        slider = best(lambda i: _slider_ms(tab, i)) if tab.evaluate("!!RA.main.move") else 0.0
        browser.close()
    size = sum(path.stat().st_size for path in page.parent.rglob("*") if path.is_file()) / 1e6
    return {
        "open_ms": opened,
        "head_ms": head,
        "slider_ms": slider,
        "n_clips": n_clips,
        "n_heads": len(heads),
        "megabytes": round(size, 1),
    }


def _opened(browser: Browser, url: str) -> Page:
    tab = browser.new_context().new_page()
    tab.goto(f"{url}#map")
    tab.wait_for_selector("a.cell")
    return tab


def _open_ms(browser: Browser, url: str) -> float:
    start = time.perf_counter()
    _opened(browser, url).context.close()
    return 1000 * (time.perf_counter() - start)


def _head_ms(tab: Page, head: str) -> float:
    """Measured inside the page, until its clips' places are drawn."""
    script = """(to) => new Promise((done) => {
      const start = performance.now(), main = document.querySelector('main');
      const seen = new MutationObserver(() => {
        if (main.dataset.path !== to) return;
        seen.disconnect();
        requestAnimationFrame(() => done(performance.now() - start));
      });
      seen.observe(main, { attributes: true, childList: true });
      location.hash = to;
    })"""
    return float(tab.evaluate(script, head))


def _slider_ms(tab: Page, turn: int) -> float:
    if turn == 0:
        tab.evaluate("() => { location.hash = 'move' }")
        tab.wait_for_selector("#accuracy[data-ms]")
        first = tab.locator("input[type=range]").first
        first.fill("0.5")  # the first step also carries the unit through the joint head
        tab.wait_for_timeout(800)
    # one step: what the page itself measured from the gains to the last pixel
    tab.locator("input[type=range]").first.fill(str(round(0.6 + 0.1 * turn, 2)))
    tab.wait_for_timeout(400)
    return float(tab.get_attribute("#accuracy", "data-ms") or "nan")
