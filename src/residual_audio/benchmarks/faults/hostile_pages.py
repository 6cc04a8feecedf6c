"""Labels, captions and ids that would like to run a script, on the pages, in a real browser."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio.benchmarks.faults.children import in_child
from residual_audio.benchmarks.faults.damage import flipped
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.faults.works import STEPS, settings_of, trained
from residual_audio.data.base import Dataset
from residual_audio.errors import EngineError, MissingExtraError
from residual_audio.pipeline.workshop import Workshop
from residual_audio.progress import SILENT

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = (
    "<script>window.hurt=1</script>",
    "</script><script>window.hurt=1</script>",
    "<img src=x onerror=window.hurt=1>",
    "<svg/onload=window.hurt=1>",
    "javascript:window.hurt=1",
    '"><script>window.hurt=1</script>',
    "'><img src=x onerror='window.hurt=1'>",
    "<!--<script>window.hurt=1//-->",
    "<iframe srcdoc='<script>parent.hurt=1</script>'>",
    "${window.hurt=1}",
    "{{constructor.constructor('window.hurt=1')()}}",
    "<a href=javascript:window.hurt=1>x</a>",
    "\u2028window.hurt=1\u2029",
    '=HYPERLINK("javascript:window.hurt=1")',
    "<style>*{display:none}</style>",
)
FLIPS = 60


def hostile(dataset: Dataset) -> Dataset:
    """The same sounds, with labels, captions and ids that would like to run a script."""
    names = sorted({str(clip.label) for clip in dataset.clips})
    classes = {name: HOSTILE[i] for i, name in enumerate(names)}
    clips = tuple(
        replace(
            clip,
            id=f"{i} {HOSTILE[i % len(HOSTILE)]}",
            label=classes[str(clip.label)],
            captions=(HOSTILE[(i + 7) % len(HOSTILE)],),
        )
        for i, clip in enumerate(dataset.clips)
    )
    by_id = {new.id: old for new, old in zip(clips, dataset.clips, strict=True)}
    assert dataset.make is not None
    make = dataset.make
    return replace(
        dataset,
        clips=clips,
        classes=HOSTILE,
        make=lambda clip, rate: make(by_id[clip.id], rate),
    )


def hostile_pages(asked: CampaignSettings = STANDARD, flips: int = FLIPS) -> list[Campaign]:
    """Every view of page and atlas with hostile names; and pieces of an atlas that were damaged."""
    scripts = asked.campaign("text: pages", "no text from data runs as a script on any view")
    pieces = asked.campaign("damage: atlas", "a damaged piece is said to be one, and is not shown")
    if scripts.complete and pieces.complete:
        return [scripts, pieces]
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise MissingExtraError("playwright", "dev", "opening pages") from None
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        run = Path(folder) / "run"
        run.mkdir()
        if in_child(partial(_make, run)):
            raise EngineError("the run with hostile names could not be made")
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page()
        for view in _views(run):
            scripts.attempt(partial(_opened, tab, run, view))
        there = sorted((run / "atlas" / "data").rglob("*.js"))
        for i in range(flips):
            place = (i * 0.6180339887) % 1.0
            pieces.attempt(partial(_damaged, tab, run, there[i % len(there)], place, i % 8))
        browser.close()
    return [scripts.end(), pieces.end()]


def _make(run: Path) -> None:
    trained(run)
    at = Workshop(settings_of(run), SILENT)
    vars(at)["dataset"] = hostile(at.dataset)
    for name, work in STEPS.items():
        if name not in ("ablate", "reweight"):
            work(at)


def _views(run: Path) -> Iterator[str]:
    yield "report.html"
    data = run / "atlas" / "data"
    for kind, prefix in (("head", ""), ("clip", "clip/")):
        for path in sorted((data / kind).glob("*.js")):
            yield f"atlas/index.html#{prefix}{path.name.removesuffix('.js')}"
    for view in ("map", "clips", "move", "map?search=script", "<script>window.hurt=1</script>"):
        yield f"atlas/index.html#{view}"


def _opened(tab: Page, run: Path, view: str) -> str | None:
    name, _, place = view.partition("#")
    url = (run / name).resolve().as_uri() + (f"#{place}" if place else "")
    asked_for: list[str] = []
    tab.on("request", lambda request: asked_for.append(request.url))
    tab.goto("about:blank")
    tab.goto(url)
    tab.wait_for_timeout(150)
    if tab.evaluate("window.hurt"):
        return f"{view}: a script ran"
    outside = [u for u in asked_for if not u.startswith(("file:", "data:", "about:", "blob:"))]
    return f"{view}: asked for {outside[0]}" if outside else None


def _damaged(tab: Page, run: Path, path: Path, place: float, bit: int) -> str | None:
    """A piece with a flipped bit is refused by its name, or it is the same piece."""
    data = run / "atlas" / "data"
    name = path.relative_to(data).as_posix().removesuffix(".js")
    url = (run / "atlas" / "index.html").resolve().as_uri()
    ask = "(name) => RA.load(name).then((p) => JSON.stringify(p), (e) => 'refused ' + e.message)"
    whole = path.read_bytes()
    answers = []
    try:
        for content in (whole, flipped(whole, place, bit)):
            path.write_bytes(content)
            tab.goto("about:blank")
            tab.goto(url)
            answers.append(str(tab.evaluate(ask, name)))
    finally:
        path.write_bytes(whole)
    good, found = answers
    if good.startswith("refused"):
        return f"{name}: whole, but {good}"
    if found.startswith("refused"):
        return None if name in found else f"{name}: {found}"
    return None if found == good else f"{name}: shown as something else"
