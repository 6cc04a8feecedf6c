"""The quick forms of the campaigns that `residual-audio bench faults` runs at length."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from residual_audio import files
from residual_audio.benchmarks.faults.bad_sound import mutate_sound
from residual_audio.benchmarks.faults.campaigns import run_campaigns
from residual_audio.benchmarks.faults.crashes import crash_everywhere
from residual_audio.benchmarks.faults.damage import damage_files
from residual_audio.benchmarks.faults.limits import within_limits
from residual_audio.benchmarks.faults.long_works import LONG_WORKS
from residual_audio.benchmarks.faults.outcome import Campaign
from residual_audio.benchmarks.faults.writers import at_once
from residual_audio.errors import InputError


def assert_held(campaigns: list[Campaign]) -> None:
    assert [broken for campaign in campaigns for broken in campaign.broken] == []
    assert all(campaign.tried == campaign.held > 0 for campaign in campaigns)


def test_crashes_at_every_moment_of_every_write() -> None:
    assert_held(crash_everywhere(4))


def test_crashes_of_ablation_and_training() -> None:
    assert_held(crash_everywhere(3, works=[w for w in LONG_WORKS if w.name in ("ablate", "train")]))


def test_full_disks_and_other_limits_are_one_sentence() -> None:
    assert_held(within_limits(2))


def test_writers_at_once_and_sigterm() -> None:
    assert_held(at_once(1))


def test_damage_is_found() -> None:
    assert_held(damage_files(30, 8))


def test_bad_sound() -> None:
    assert_held(mutate_sound(150))


def test_unknown_campaigns_are_named() -> None:
    with pytest.raises(InputError, match="no campaign 'floods'"):
        run_campaigns(["floods"])


def test_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from residual_audio.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as t:\n"
        "    t.write_bytes(b'half'); os._exit(9)"
    )
    target = tmp_path / "x.json"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, str(target)], check=False)
        assert [files.is_temporary(path.name) for path in tmp_path.iterdir()] == [True]
    files.write_text(target, "whole")
    assert os.listdir(tmp_path) == ["x.json"]


def test_the_file_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    with files.replacing(target) as temporary:
        temporary.write_bytes(b"first")
        files.write_text(target, "second")
        assert temporary.exists()
    assert target.read_bytes() == b"first"
