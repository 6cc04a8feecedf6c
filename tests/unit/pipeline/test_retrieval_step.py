"""Retrieval as a step of a run: measured where there are captions, and shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_run import small_dataset, small_model

from residual_audio.atlas.captions_piece import retrieval_sentence
from residual_audio.pipeline import work
from residual_audio.pipeline.run import STEPS
from residual_audio.pipeline.run_settings import RunSettings
from residual_audio.pipeline.workshop import Workshop
from residual_audio.progress import SILENT
from residual_audio.report.page import write_page
from residual_audio.report.run_tables import Tables
from residual_audio.results import read_result


@pytest.fixture
def at(tmp_path) -> Workshop:
    settings = RunSettings("small", "synthetic", tmp_path / "run", n_folds=2, quick=True)
    made = Workshop(settings, SILENT)
    vars(made)["model"], vars(made)["dataset"] = small_model(), small_dataset()
    return made


def without(at: Workshop, **fields: object) -> None:
    bare = tuple(replace(clip, **fields) for clip in at.dataset.clips)
    vars(at)["dataset"] = replace(at.dataset, clips=bare)


def test_a_quick_run_of_labelled_clips_fits_no_gains_to_captions(at):
    work.extract_store(at)
    (written,) = work.retrieve_store(at).files
    assert read_result(written).task == "retrieval"


def test_captions_are_retrieved_before_and_after(at):
    without(at, label=None)
    step = next(step for step in STEPS if step.name == "retrieval")
    work.extract_store(at)
    assert step.wanted(at)
    done = step.work(at)
    assert done.line.startswith("R@1 ")
    by_task = {
        read_result(p).task: read_result(p) for p in done.files if p.parent.name == "results"
    }
    whole = by_task["retrieval"]
    assert whole["t2a_r1"].n == sum(len(clip.captions) for clip in at.dataset.clips)
    table = Tables(at.out)["retrieval_adapted"]
    assert set(table["key"].tolist()) == {"zero-shot", "heads-3"}
    said = retrieval_sentence(table)
    row = next(
        r
        for r in table.rows()
        if (r["key"], r["fold"], r["direction"], int(r["k"]), r["count"])
        == ("heads-3", "all", "t2a", 1, "shared")
    )
    assert f"first for {100 * row['before']:.1f}% of" in said
    gain = f"{100 * row['gain']:+.1f}".replace("-", "−")
    assert f"changes that by {'0.0' if gain == '+0.0' else gain} points" in said
    assert "by chance" in said
    page = write_page(at.out).read_text()
    assert "Captions: is the right one found, before and after?" in page


def test_a_run_without_captions_misses_nothing(at):
    without(at, captions=())
    step = next(step for step in STEPS if step.name == "retrieval")
    assert not step.wanted(at)
    assert retrieval_sentence(None) == ""
