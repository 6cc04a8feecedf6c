"""What the sliders of the atlas give is what Python gives, for every kind of joint head."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from atlas_browser import Page
from atlas_run import shared_run, silent_run
from families import family_model
from joint_heads import KINDS, D, module

import residual_audio as ra
from residual_audio.adaptation.problem import problem_of
from residual_audio.adaptation.transfer import embed_with
from residual_audio.atlas.class_answers import answers_of
from residual_audio.atlas.move import joint_piece
from residual_audio.atlas.packed import floats
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_arrays import joint_of
from residual_audio.direct.joint_module import joint_of_module
from residual_audio.evaluation.by_centroids import answer_by_centroids
from residual_audio.judge.of_store import classes_with_clips, clips_of
from residual_audio.reweight.terms import apply_direct
from residual_audio.surface.gain_studies import slider_gains
from residual_audio.types import Gains

pytestmark = pytest.mark.browser
SCORES = "Array.from(RA.scores.values)"


def python_scores(run: Path, gains: Gains | None) -> np.ndarray:
    store = ra.open_store(run)
    parts = Contributions(store)
    latent = parts.latent if gains is None else apply_direct(parts, gains)
    answers = answers_of(store)
    assert answers is not None
    return answers.cosines(joint_of(store)(latent))


def read(query: str) -> dict[str, list[float]]:
    pairs = [part.split("=") for part in query.split("&")]
    return {name: [float(x) for x in values.split(",")] for name, values in pairs}


def same(page: Any, run: Path, gains: Gains) -> None:
    """Scores and accuracy on the page are those of Python, and not those of the model as it is."""
    expected = python_scores(run, gains)
    found = np.array(page.evaluate(SCORES)).reshape(expected.shape)
    assert np.abs(found - expected).max() < 1e-4
    store = ra.open_store(run)
    answers = answers_of(store)
    assert answers is not None
    right = (expected.argmax(1) == answers.codes).mean()
    assert float(page.get_attribute("#accuracy", "data-value")) == pytest.approx(right, abs=1e-6)
    assert np.abs(expected - python_scores(run, None)).max() > 1e-3


@pytest.mark.parametrize(
    "query",
    [
        "s3.b0.h1=0",
        "s3.b0.h0=1.5,0.2,1,2",
        "s2=0.5&s3.b0.attention=2&s1.b0.h0=-1",
    ],
)
def test_sliders_give_what_python_gives(opened: Page, run: Path, query: str):
    same(opened.go(f"#move?{query}"), run, slider_gains(run, read(query)))


def test_rules_give_what_python_gives(opened: Page, run: Path):
    page = opened.go("#move?s3=0.5&p=rule-window:0.5,rule-prune-early:1")
    same(page, run, slider_gains(run, {"s3": [0.5]}, rules={"window": 0.5, "prune-early": 1.0}))


def test_every_kind_of_joint_head_is_computed_as_python_does(opened: Page):
    page = opened.go("#map")
    for kind in KINDS:
        joint = joint_of_module(module(kind))
        latent = np.random.default_rng(1).normal(size=(5, D))
        asked = [joint_piece(joint), floats(latent)]
        found = page.evaluate(
            """([piece, packed]) => {
              const head = RA.joint.of(piece), { values } = RA.unpack(packed), n = 5;
              return Array.from(head.finish(head.enter(values, n, false), n));
            }""",
            asked,
        )
        expected = joint(latent)
        close = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(
            np.array(found).reshape(expected.shape), expected, atol=close, err_msg=kind
        )


@pytest.mark.parametrize("family", ["whisper", "pe-audio"])
def test_other_encoders_are_moved_too(
    browser: Any, family: str, tmp_path_factory: pytest.TempPathFactory
):
    """Whisper here has one stage and no text side: classes are centroids of other folds. The other
    has rotary attention and a joint head that normalises first."""

    def make(out: Path) -> Path:
        model = family_model(family)
        for name, parameter in model.encoder.named_parameters():
            if name.endswith(("attn_out.weight", ".proj.weight", "o_proj.weight")):
                parameter.data *= 30.0  # random attention hardly moves an embedding
        return silent_run(out, model)

    run = shared_run(tmp_path_factory, f"atlas-{family}", make)
    store = ra.open_store(run)
    query = "s0.b1.attention=-1&s0.b0.h1=3,0"
    context = browser.new_context()
    page = Page(context, run)
    same(page.go(f"#move?{query}"), run, slider_gains(run, read(query)))
    by = page.page.evaluate("RA.main.answered_by")
    assert by == ("texts" if store.has_text else "centroids")
    if not store.has_text:
        cosines, _, _ = answer_by_centroids(
            store.embedding(), clips_of(store), classes_with_clips(store)
        )
        assert np.abs(python_scores(run, None) - cosines).max() < 1e-5
    for address in ("#map", "#s0.b0.h0", "#clip/0", "#clips"):
        page.go(address)
    context.close()
    assert page.wrong == []


def test_a_slider_moves_and_what_it_says_is_kept(opened: Page, tmp_path: Path, run: Path):
    page = opened.go("#move")
    before = page.evaluate(SCORES)
    page.locator("input[aria-label='gain of s3']").fill("0")
    page.wait_for_function("() => location.hash.includes('s3=0')")
    assert page.evaluate(SCORES) != before
    opened.go("#move?s2=0.5&s3.b0.h0=1.5,0.2&p=rule-window:0.5")
    gains = slider_gains(run, {"s2": [0.5], "s3.b0.h0": [1.5, 0.2]}, rules={"window": 0.5})
    with page.expect_download() as download:
        page.click("text=Save as a gains file")
    saved = tmp_path / "sliders.safetensors"
    download.value.save_as(saved)
    kept = ra.load_gains(saved)
    assert kept.path == "direct"
    assert np.abs(python_scores(run, kept) - python_scores(run, gains)).max() < 1e-4
    problem = problem_of(ra.open_store(run))
    assert embed_with(problem, kept).shape == problem.joint.shape  # of this model, it says so
    whole = bytearray(saved.read_bytes())
    whole[-5] ^= 1
    saved.write_bytes(bytes(whole))
    with pytest.raises(ra.ResidualAudioError, match="damaged"):
        ra.load_gains(saved)
    opened.go("#move?p=fitted:1")
    assert np.abs(np.array(page.evaluate(SCORES)) - np.array(before)).max() > 1e-4
    page.click("text=Save as a gains file")
    page.wait_for_selector("text=a file a fold")


def test_copied_python_runs_and_prints_what_the_page_shows(opened: Page, run: Path):
    page = opened.go("#move?s3=0.2&p=rule-prune-early:1")
    page.click("text=Copy as Python")
    code = page.get_attribute("button[data-copied]", "data-copied")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=run.parent, capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = float(page.get_attribute("#accuracy", "data-value"))
    assert float(done.stdout) == pytest.approx(shown, abs=1e-6)
