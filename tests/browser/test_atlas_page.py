"""The atlas in a browser, opened from the file system: seen, heard, moved; nothing leaves it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from atlas_browser import Page
from atlas_run import shared_run, silent_run
from families import family_model

import residual_audio as ra

pytestmark = pytest.mark.browser


def test_the_answer_comes_first_and_colours_follow_the_metric(opened: Page):
    page = opened.go("#map")
    assert "95% interval" in page.inner_text(".answer")
    cells = page.locator("a.cell")
    assert cells.count() == 19
    colours = "() => [...document.querySelectorAll('a.cell')].map((c) => c.style.background)"
    before = page.evaluate(colours)
    page.select_option("#metric", "pr")
    page.wait_for_function("() => document.querySelector('main').dataset.ready.includes('m=pr')")
    assert page.evaluate(colours) != before
    cells.nth(3).hover()
    assert "Participation ratio" in page.inner_text(".about")
    values = sorted(page.evaluate("RA.map.shown('pr').values"))
    page.fill("input[aria-label='lowest value shown']", str(values[10]))
    page.locator("input[aria-label='lowest value shown']").blur()
    page.wait_for_function("() => document.querySelector('main').dataset.ready.includes('r=')")
    assert 0 < page.locator("a.cell.out").count() < 19
    page.go_back()
    page.wait_for_function("() => !document.querySelector('main').dataset.ready.includes('r=')")
    assert page.locator("a.cell.out").count() == 0


def test_dragging_over_the_histogram_selects_heads(opened: Page):
    page = opened.go("#map?m=pr")
    box = page.locator(".histogram").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 30, steps=3)
    page.mouse.up()
    page.wait_for_function("() => location.hash.includes('r=')")
    page.wait_for_selector("a.cell.out")
    values = page.evaluate("RA.map.shown('pr').values")
    middle = (min(values) + max(values)) / 2
    kept = sum(value >= middle for value in values)
    assert abs(page.locator("a.cell:not(.out)").count() - kept) <= 1


def test_what_was_lost_elsewhere_is_drawn(opened: Page):
    page = opened.go("#map")
    page.click("#front summary")
    assert page.locator("#front circle").count() == 3
    assert "reference" in page.inner_text(".answer")


def test_a_head_opens_by_click_key_and_permalink_and_is_heard(opened: Page):
    page = opened.go("#map")
    page.click('a.cell[data-id="s3.b0.h2"]')
    page.wait_for_selector('main[data-path="s3.b0.h2"]')
    assert page.inner_text("article h2").startswith("s3.b0.h2")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('main[data-path="s3.b0.h3"]')
    page.go_back()
    page.wait_for_selector('main[data-path="s3.b0.h2"]')
    page.wait_for_selector('.overlay[data-drawn="yes"]')
    painted = """() => [...document.querySelectorAll('.overlay[data-drawn]')].some((c) =>
      c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v, i) =>
        i % 4 === 3 && v > 60))"""
    assert page.evaluate(painted)
    page.locator("article h2").click()
    page.keyboard.press("Space")
    page.wait_for_function("() => document.querySelector('#player').currentTime > 0.05")
    assert page.locator(".clip.playing").count() == 1
    page.locator(".board button").first.hover()
    assert "from time" in page.inner_text(".attention")


def test_a_clip_says_which_heads_speak_for_an_answer(opened: Page):
    page = opened.go("#clip/0")
    assert "terms sum to" in page.inner_text("#speakers")
    page.locator(".answer-row").nth(1).click()
    assert page.locator(".answer-row").nth(1).get_attribute("aria-pressed") == "true"


def test_a_clip_shows_its_scores_over_time(opened: Page):
    page = opened.go("#clip/0")
    bars = (
        "() => [...document.querySelectorAll('.times rect')].map((r) => r.getAttribute('height'))"
    )
    first = page.evaluate(bars)
    assert len(first) == 16
    assert "need not be where the sound is" in page.inner_text("#times")
    page.locator(".answer-row").nth(1).click()
    assert page.evaluate(bars) != first


def test_a_notebook_shows_it_inline(browser: Any, run: Path, tmp_path: Path):
    shown = ra.atlas(run, out=tmp_path / "atlas")._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><p>cell</p>{shown}")
    context = browser.new_context()
    page, wrong = context.new_page(), []
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((tmp_path / "notebook.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.locator('a.cell[data-id="s3.b0.h2"]').click()
    frame.locator(".head-page").wait_for()
    frame.locator("nav >> text=Move it").click()
    frame.locator("#accuracy").wait_for()
    (inside,) = [one for one in page.frames if one != page.main_frame]
    before = inside.evaluate("Array.from(RA.scores.values)")
    frame.locator("input[aria-label='gain of s3']").fill("-1")
    inside.wait_for_function("() => location.hash.includes('s3=-1')")
    assert inside.evaluate("Array.from(RA.scores.values)") != before
    assert page.url.endswith("notebook.html")
    context.close()
    assert wrong == []


def test_search_finds_heads_and_clips_by_word(opened: Page):
    page = opened.go("#map")
    label = page.evaluate("RA.main.clips.label[0]")
    page.keyboard.press("/")
    page.keyboard.type(label)
    page.wait_for_selector("#results a")
    assert label in page.inner_text("#results")
    page.keyboard.press("Escape")
    opened.go(f"#map?q={label}")
    fitting = page.evaluate("(q) => RA.map.fitting(q).filter(Boolean).length", label)
    assert page.locator("a.cell.lit").count() == fitting
    assert page.locator(".found").is_visible()


def test_two_runs_stand_side_by_side(browser: Any, run: Path, hostile_run: Path, tmp_path: Path):
    ra.atlas(run, hostile_run, out=tmp_path / "atlas")
    context = browser.new_context()
    page = Page(context, tmp_path)
    drawn = page.go("#map?mode=difference&m=pr")
    values = drawn.evaluate("RA.map.shown('pr', 'difference').values")
    assert all(value == pytest.approx(0, abs=1e-6) for value in values)  # the same sounds
    assert page.go("#map").locator(".answer.two").count() == 1
    context.close()
    assert page.wrong == []


def test_two_encoders_are_compared_by_their_most_alike_heads(
    browser: Any, run: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
):
    def make(out: Path) -> Path:
        return silent_run(out, family_model("ast"))

    other = shared_run(tmp_path_factory, "atlas-ast", make)
    ra.atlas(run, other, out=tmp_path / "atlas")
    context = browser.new_context()
    page = Page(context, tmp_path)
    drawn = page.go("#map")
    offered = drawn.locator("#mode option").evaluate_all("(list) => list.map((o) => o.value)")
    assert offered == ["own", "other", "aligned", "cka"]
    assert "no head has a namesake" in drawn.inner_text(".map-view")
    assert page.go("#map?mode=other&m=pr").locator(".cell").count() == 8
    drawn.locator(".cell").nth(2).hover()
    assert "s0.b0.h2" in drawn.inner_text(".about")
    page.go("#map?mode=aligned&m=pr")
    own, best, theirs, ids, shown = drawn.evaluate(
        "[RA.map.shown('pr').values, RA.main.other.aligned.best, "
        "RA.main.other.numbers.find((m) => m.key === 'pr').values, RA.main.other.ids, "
        "RA.map.shown('pr', 'aligned').values]"
    )
    for value, name, difference in zip(own, best, shown, strict=True):
        assert difference == pytest.approx(value - theirs[ids.index(name)])
    context.close()
    assert page.wrong == []


def test_features_from_elsewhere_are_listed_found_and_heard(
    browser: Any, run: Path, tmp_path: Path
):
    n = len(ra.open_store(run))
    names = ["bright <b>", "dull"]
    listed = [{"name": k, "activations": [float(i * s) for i in range(n)]}
              for k, s in zip(names, (1, -1), strict=True)]  # fmt: skip
    path = tmp_path / "features.json"
    path.write_text(json.dumps({"name": "mine", "features": listed}))
    ra.atlas(run, out=tmp_path / "atlas", features=path)
    context = browser.new_context()
    page = Page(context, tmp_path)
    drawn = page.go("#features")
    assert names[0] in drawn.inner_text("table")
    drawn.click(f"text={names[0]}")
    drawn.wait_for_selector('main[data-path="feature/0"]')
    assert drawn.locator(".clip").count() == 8
    assert "Above zero for" in drawn.inner_text("main")
    drawn.fill("#search", "dull")
    drawn.wait_for_selector("#results a[href='#feature/1']")
    context.close()
    assert page.wrong == []


@pytest.mark.parametrize("single", [False, True])
def test_hostile_names_run_no_script(browser: Any, hostile_run: Path, single: bool, tmp_path: Path):
    if single:
        ra.atlas(hostile_run, out=tmp_path / "atlas", single_file=True)
    context = browser.new_context()
    page = Page(context, tmp_path if single else hostile_run)
    for address in ("#map", "#s3.b0.h0", "#clip/0", "#clip/3", "#clips", "#move?s3=0"):
        drawn = page.go(address)
        drawn.wait_for_timeout(50)
        assert drawn.evaluate("window.hurt") is None
    assert any("<script>" in label for label in drawn.evaluate("RA.main.clips.label"))
    drawn.evaluate("location.hash = '#<img src=x onerror=window.hurt=1>'")
    drawn.wait_for_timeout(100)
    assert drawn.evaluate("window.hurt") is None
    policy = drawn.get_attribute("meta[http-equiv]", "content")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    context.close()
    assert page.wrong == []
    assert page.left == []


def test_a_damaged_piece_is_said_to_be_one(browser: Any, run: Path, tmp_path: Path):
    shutil.copytree(run / "atlas", tmp_path / "atlas")
    path = tmp_path / "atlas" / "data" / "head" / "s3.b0.h0.js"
    data = bytearray(path.read_bytes())
    at = data.index(b'"shares":[0.') + 12
    data[at] = ord("1") if data[at] != ord("1") else ord("2")  # another number, the same syntax
    path.write_bytes(bytes(data))
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{(tmp_path / 'atlas' / 'index.html').as_uri()}#s3.b0.h0")
    page.wait_for_selector("[role=alert]")
    assert "the piece head/s3.b0.h0 of this atlas is damaged" in page.inner_text("[role=alert]")
    page.evaluate("location.hash = 's3.b0.h1'")
    page.wait_for_selector(".head-page")
    context.close()
