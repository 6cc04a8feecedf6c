"""What was learned, skipped and heard before is told, on the terminal and on the page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from residual_audio.cli import main
from residual_audio.cli.app import build
from residual_audio.pipeline.run import MOST_NAMED, _warnings
from residual_audio.report.page import write_page
from residual_audio.reweight.gain_files import save_gains
from residual_audio.store import Store
from residual_audio.table import Table
from residual_audio.types import Gains, Spectrum

SAID = {
    "held_out_top1_before": 0.25,
    "held_out_before": 1.5,
    "held_out_loss": 1.2,
    "held_out_error": 0.1,
}
SPECTRUM = Spectrum(np.zeros(2), np.eye(2), np.ones(2), 9)


def fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gains: Gains) -> str:
    """What `reweight fit` says where these gains are found."""
    monkeypatch.setattr("residual_audio.surface.fitted.fit_gains", lambda *_, **__: gains)
    monkeypatch.setattr("residual_audio.surface.caption_gains.goes_by_captions", lambda _: False)
    call = ["reweight", "fit", str(tmp_path), "--out", str(tmp_path / "gains")]
    done = CliRunner().invoke(build(), call)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_fit_that_learned_nothing_says_so_and_lists_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    about: dict[str, Any] = {**SAID, "held_out_top1": 0.25, "strength": math.inf}
    ones = Gains({"s3": np.ones(2)}, {"s3": SPECTRUM}, fitted_on=about)
    said = fit(monkeypatch, tmp_path, ones)
    assert "nothing was learned: held-out top-1 stays at 25.0%, all gains are 1" in said
    assert "moved most" not in said
    assert "0 of 2 gains moved" in said


def test_a_fit_that_no_hold_allows_says_what_would_leave_more_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    about: dict[str, Any] = {**SAID, "held_out_top1": 0.25, "strength": math.inf, "hold": math.inf}
    ones = Gains({"s3": np.ones(2)}, {"s3": SPECTRUM}, fitted_on=about)
    said = fit(monkeypatch, tmp_path, ones)
    assert "nothing moved" in said
    assert "--max-loss" in said


def test_a_fit_says_what_held_out_clips_say_before_and_after(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    about: dict[str, Any] = {**SAID, "held_out_top1": 0.5, "strength": 0.1}
    found = Gains({"s3": np.array([1.0, 2.0])}, {"s3": SPECTRUM}, fitted_on=about)
    said = fit(monkeypatch, tmp_path, found)
    assert "held-out top-1 25.0% before, 50.0% after" in said
    assert "moved most" in said
    assert "1 of 2 gains moved, in 1 of 1 units" in said


def test_an_export_of_direct_gains_says_what_to_do_instead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spectrum = Spectrum(np.zeros(12), np.eye(12), np.ones(12), 9)
    direct = Gains({"s3.b1.h0": np.full(12, 0.5)}, {"s3.b1.h0": spectrum}, path="direct")
    path = save_gains(direct, tmp_path / "direct")
    words = ["residual-audio", "export", "-g", str(path), "-o", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert "reweight fit RUN --path network --out GAINS" in said
    assert "--gains" in said
    assert not (tmp_path / "out").exists()


def test_the_page_names_clips_that_were_skipped_odd_or_heard_before(tmp_path: Path) -> None:
    many = {f"clip {i:02}": "is silent" for i in range(MOST_NAMED + 2)}
    note = "the model was trained on 3 of these 6 clips"
    seen = SimpleNamespace(
        heard_before={"note": note}, skipped={"bad.wav": "is not a sound file"}, remarks=many
    )
    lines = _warnings(cast(Store, seen), {"ablate": "no text side"})
    (tmp_path / "run.json").write_text(json.dumps({"model": "m", "warnings": lines}))
    page = write_page(tmp_path).read_text()
    for line in (note, "skipped: bad.wav: is not a sound file", "odd: clip 00: is silent"):
        assert line in page
    assert f"clip {MOST_NAMED:02}" not in page
    assert "odd: 2 more clips, named in run.json" in page
    assert "ablate: no text side" in page


def test_ablate_tells_what_is_missed_most_before_any_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    effects = {
        "unit": ["s0.b0.h0", "s0.b0.h1"],
        "d_margin": [0.01, -0.2],
        "d_margin_low": [-0.1, -0.3],
        "d_margin_high": [0.1, -0.1],
        "q_margin": [0.9, 0.01],
        "n": [10, 10],
    }
    unknown = {
        "importance": ["exact correct"],
        "metric": ["pr"],
        "pearson": [math.nan],
        "p": [math.nan],
        "q": [math.nan],
        "n": [12],
    }
    tables = [
        Table("ablation_head_exact", effects, "Removing each head, exact"),
        Table("ablation_block_correlations", unknown, "Which metric?"),
    ]
    monkeypatch.setattr("residual_audio.cli.ablate.given_run", lambda *_: None)
    monkeypatch.setattr("residual_audio.surface.inside.ablation_study", lambda *_, **__: tables)
    done = CliRunner().invoke(build(), ["ablate", str(tmp_path)])
    assert done.exit_code == 0, done.output
    first = "most margin is lost without s0.b0.h1 -0.2000 [-0.3000, -0.1000], q 0.01"
    assert done.stdout.splitlines()[0].endswith(first)
    assert "That cannot be told" in done.stdout
    assert "–" not in done.stdout
