"""A comparison on the terminal: the answer first, and no row that breaks the table."""

from __future__ import annotations

import math

import pytest

from residual_audio.cli.adapted_table import answer, show_verdicts

ROW = {
    "method": "ResiDual heads {0–3}",
    "parameters": 14536,
    "top1": 0.505,
    "gain": 0.431,
    "gain_low": 0.382,
    "gain_high": 0.48,
    "n": 689,
    "capped": 0,
}
EDIT = {
    "units_moved": 62.0,
    "heads_moved": 51.0,
    "moved": 754.0,
    "energy": 1.5,
    "distance": 0.914,
    "negative": 0.0,
    "stability": 0.9035,
    "always": 57,
    "ever": 59,
}


def test_the_answer_says_gain_interval_heads_and_likeness():
    said = answer({**ROW, **EDIT}, 15)
    assert "top-1 50.5%, +43.1 [+38.2, +48.0] points over" in said
    assert "(n = 689, chance 6.7%); 62 units moved, 51 of them heads, " in said
    assert said.endswith("edits of two folds have a cosine of 0.90")


@pytest.mark.parametrize(("low", "high", "clear"), [(-0.01, 0.02, False), (-0.2, -0.1, True)])
def test_the_answer_says_what_is_not_clear_of_0(low, high, clear):
    said = answer({**ROW, **EDIT, "gain_low": low, "gain_high": high}, 15)
    assert ("not clear of 0" in said) is not clear


def test_gains_that_did_not_move_are_called_that():
    still = {**EDIT, "units_moved": 0.0, "stability": math.nan}
    assert answer({**ROW, **still}, 15).endswith("nothing moved")


def test_rows_with_gains_without_costs_and_failed_ones_share_a_table(capsys):
    probe = {**ROW, "method": "linear probe", "lost": math.nan}
    failed = {"method": "output-PCA gains", "failed": "fold 1: too few clips"}
    kept = {**ROW, **EDIT, "lost": 0.161, "lost_error": 0.025}
    show_verdicts([kept, probe, failed], "Adaptation")
    shown = capsys.readouterr().out
    for words in ("57–59", "16.1 ± 2.5", "754", "linear probe", "too few clips"):
        assert words in shown
