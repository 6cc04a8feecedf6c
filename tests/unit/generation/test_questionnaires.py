"""Questionnaires: scores as their authors define them, α with an interval that covers."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from residual_audio.cli.app import build
from residual_audio.errors import InputError
from residual_audio.generation.questionnaire_files import COUNTS, ITEMS, score_questionnaires
from residual_audio.metrics import questionnaires as q


def test_scores_at_the_ends_and_in_the_middle():
    best, worst = [5, 1] * 5, [1, 5] * 5
    assert q.sus([best, worst, [3] * 10]).tolist() == [100, 0, 50]
    found = q.ueq_s([[7] * 4 + [1] * 4])
    assert (found["pragmatic"][0], found["hedonic"][0], found["overall"][0]) == (3, -3, 0)
    counts = [[5, 4, 3, 2, 1, 0]]
    assert q.csi([[10] * 12], counts)[0] == 100
    only_first = [[10, 10] + [0] * 10]
    assert q.csi(only_first, counts)[0] == pytest.approx(20 * 5 / 3)


def test_answers_off_the_form_are_refused():
    with pytest.raises(InputError, match="answer 6 of person 1 to item 2"):
        q.sus([[5, 6] + [1] * 8])
    with pytest.raises(InputError, match="sum to 6"):
        q.csi([[5] * 12], [[1] * 6])


def test_alpha_interval_covers():
    rng, covered, n = np.random.default_rng(0), 0, 600
    k, truth = 10, 10 * 0.5 / (1 + 9 * 0.5)  # ten items that correlate by 0.5
    for _ in range(n):
        x = rng.normal(size=(12, 1)) * np.sqrt(0.5) + rng.normal(size=(12, k)) * np.sqrt(0.5)
        found = q.cronbach_alpha(x)
        covered += found.low <= truth <= found.high
    assert 0.93 <= covered / n <= 0.97


def table(path, n_people=12, seed=0):
    rng = np.random.default_rng(seed)
    names = [*ITEMS["sus"], *ITEMS["ueqs"], *ITEMS["csi"], *COUNTS]
    lines = [",".join(["participant", "system", *names])]
    for person in range(n_people):
        for system, shift in (("A", 1), ("B", -1)):
            good = np.clip(3 + shift + rng.integers(-1, 2, 10), 1, 5)
            sus = [g if i % 2 == 0 else 6 - g for i, g in enumerate(good)]
            ueqs = np.clip(4 + shift + rng.integers(-1, 2, 8), 1, 7)
            csi = np.clip(5 + 2 * shift + rng.integers(-1, 2, 12), 0, 10)
            row = [*sus, *ueqs, *csi, 5, 4, 3, 2, 1, 0]
            lines.append(",".join([f"p{person}", system, *map(str, row)]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_is_scored_by_system(tmp_path):
    found = score_questionnaires(table(tmp_path / "asked.csv"))
    of = {s.name: s for s in found.scores}
    for name in ("sus", "ueq_s_pragmatic", "csi"):
        assert of[f"{name}/A"].low > of[f"{name}/B"].high
    assert of["sus/A"].n == 12
    assert set(found.details["reliability"]) == {"sus", "ueq_s_pragmatic", "ueq_s_hedonic", "csi"}
    assert "p0" not in json.dumps(found.details)  # nobody is named
    (tmp_path / "none.csv").write_text("participant,system,age\np,A,3\n")
    with pytest.raises(InputError, match="no questionnaire"):
        score_questionnaires(tmp_path / "none.csv")


def test_questionnaires_stand_in_the_music_report(tmp_path):
    table(tmp_path / "asked.csv")
    study = {"systems": {"A": {}, "B": {}}, "questionnaires": "asked.csv"}
    (tmp_path / "study.json").write_text(json.dumps(study))
    args = ["music", "report", str(tmp_path / "study.json"), "-o", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(build(), args)
    assert done.exit_code == 0, done.output
    assert {"sus", "csi", "ueq_s_hedonic"} <= set(json.loads(done.stdout)["measures"])
