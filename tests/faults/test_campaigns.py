"""The quick forms of the campaigns that `residual-audio bench faults` runs at length."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from residual_audio import files
from residual_audio.benchmarks.faults.bad_sound import mutate_sound
from residual_audio.benchmarks.faults.campaigns import CAMPAIGNS, chosen_campaigns, run_campaigns
from residual_audio.benchmarks.faults.children import in_child
from residual_audio.benchmarks.faults.crashes import chosen_moments, contents, crash_everywhere
from residual_audio.benchmarks.faults.damage import damage_files
from residual_audio.benchmarks.faults.filmed import film, read_film
from residual_audio.benchmarks.faults.full_disks import full_disk
from residual_audio.benchmarks.faults.hostile_models import hostile_models
from residual_audio.benchmarks.faults.hostile_text import hostile_text
from residual_audio.benchmarks.faults.kills import kill_at_random
from residual_audio.benchmarks.faults.limits import within_limits
from residual_audio.benchmarks.faults.outcome import Campaign, CampaignSettings
from residual_audio.benchmarks.faults.read_back import KINDS
from residual_audio.benchmarks.faults.same_answer import nothing_left, same_answer
from residual_audio.benchmarks.faults.works import WORKS, Work, extract_small
from residual_audio.benchmarks.faults.writers import at_once
from residual_audio.errors import InputError


def assert_held(campaigns: list[Campaign]) -> None:
    assert [broken for campaign in campaigns for broken in campaign.broken] == []
    assert all(campaign.tried == campaign.held > 0 for campaign in campaigns)


def some(*names: str) -> list[Work]:
    return [work for work in WORKS if work.name in names]


def test_crashes_at_every_moment_of_every_write() -> None:
    assert_held(crash_everywhere(works=some("extract", "convert", "export"), most=3))


def test_crashes_of_training_and_of_steps_of_a_run() -> None:
    assert_held(crash_everywhere(works=some("train", "evaluate"), most=2))


def two_parts(out: Path, careless: bool = False) -> None:
    """Writes `a`, and then `b`; a mark after each."""
    for i, name in enumerate("ab"):
        if not (out / "steps.json").is_file() or i >= len(files.read_json(out / "steps.json")):
            was_there = (out / name).is_file()
            files.write_text(out / name, "twice" if was_there and careless else "once")
            files.write_json(out / "steps.json", {f"{j}": {"files": {}} for j in range(i + 1)})


@pytest.mark.parametrize("careless", [False, True])
def test_crashes_of_work_in_parts(careless: bool) -> None:
    """A start need not go on beyond the part it was killed in; what it does wrong is found."""
    work = Work("two parts", partial(two_parts, careless=careless), marks="steps.json")
    found = crash_everywhere(works=[work])[0]
    assert found.tried == 20
    assert found.held == (10 if careless else 20)


def test_every_command_that_writes_is_crashed() -> None:
    """The long form has them all, at every moment."""
    names = ("extract", "analyse", "ablate", "reweight", "evaluate", "listen", "report", "atlas",
             "export", "train", "run", "cache")  # fmt: skip
    assert set(names) <= {work.name for work in WORKS}
    assert chosen_moments(10, None) == list(range(10))
    assert chosen_moments(10, 3) == [0, 4, 8]


def test_a_film_shows_what_a_kill_leaves(tmp_path: Path) -> None:
    """States that crashes start from are seen in one run: killed there, a process leaves them."""
    assert in_child(partial(film, extract_small, tmp_path / "whole", tmp_path / "film")) == 0
    found = read_film(tmp_path / "film")
    n = len(found.moments)
    kinds = [moment.partition(" ")[0] for moment, _ in found.moments]
    assert set(kinds) == {"begin", "written", "synced", "renamed", "durable"}
    for moment in (0, n // 2, n // 2 + 1, n - 1):
        killed = tmp_path / f"killed-{moment}"
        assert in_child(partial(_killed_at, moment, killed)) == -signal.SIGKILL
        shown = found.show(found.moments[moment][1], tmp_path / f"shown-{moment}")
        assert _seen(killed) == _seen(shown)


def _killed_at(moment: int, out: Path) -> None:
    n = 0

    def watch(what: files.Moment, path: Path) -> None:
        nonlocal n
        if n == moment:
            if what == "written":
                os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        n += 1

    files.watch = watch
    extract_small(out)


def _seen(folder: Path) -> dict[str, str]:
    """Temporary names and holders of locks have the number of their process in them; how much of
    a temporary file is there makes no difference."""
    found = {n: d for n, d in contents(folder).items() if not n.endswith("-holder")}
    passing = {n.rpartition(".")[0].rpartition(".")[0]: "" for n in found if files.is_temporary(n)}
    return {n: digest for n, digest in found.items() if not files.is_temporary(n)} | passing


def test_full_disks_and_other_limits_are_one_sentence() -> None:
    assert_held(within_limits(most=2))


def test_writers_at_once_and_sigterm() -> None:
    assert_held(at_once(rounds=1))


def test_kills_at_random() -> None:
    assert_held(kill_at_random(kills={"one process": 2, "SIGTERM": 1}))


def test_damage_is_found() -> None:
    kinds = [kind for kind in KINDS if kind.name in ("store", "gains", "model", "results")]
    assert_held(damage_files(flips=30, cuts=8, kinds=kinds))


def test_damage_of_runs_and_of_training_is_found() -> None:
    kinds = [kind for kind in KINDS if kind.name in ("tables", "training", "digests of data")]
    assert_held(damage_files(flips=40, cuts=10, kinds=kinds))


def test_a_reader_that_believes_everything_would_be_found_out() -> None:
    """The campaign itself can fail."""
    gains = next(kind for kind in KINDS if kind.name == "gains")
    blind = replace(gains, read=lambda out: (out / "small.safetensors").read_bytes())
    found = damage_files(flips=6, cuts=0, kinds=[blind])[0]
    assert found.held < found.tried
    assert "read as something else" in found.broken[0]


def test_bad_sound() -> None:
    assert_held(mutate_sound(n=150))


def test_hostile_models() -> None:
    assert_held(hostile_models(most=3))


def test_hostile_text() -> None:
    assert_held(hostile_text(most=1))


def test_the_same_answer_to_the_bit() -> None:
    assert_held(same_answer())


def test_embeddings_leave_nothing() -> None:
    assert_held(nothing_left(embeddings=120))


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    asked = CampaignSettings(keep=tmp_path)
    cases = ["held", "broken", "not reached"]
    first = asked.campaign("floods: one", "nothing is wet")
    first.attempt(lambda: None)
    first.attempt(lambda: "wet")
    first._save()
    again = asked.campaign("floods: one", "nothing is wet")
    tried: list[str] = []
    for case in cases:
        again.attempt(lambda case=case: tried.append(case))  # type: ignore[misc, func-returns-value]
    assert tried == ["not reached"]
    assert (again.end().tried, again.held, again.broken) == (3, 2, ["wet"])
    kept = json.loads((tmp_path / "floods-one.json").read_text())
    assert kept["complete"]
    assert kept["command"].endswith("--campaign floods --keep FOLDER")
    assert asked.campaign("floods: one", "nothing is wet").complete
    with pytest.raises(InputError, match="other settings"):
        CampaignSettings(keep=tmp_path, seed=1).campaign("floods: one", "nothing is wet")


def test_campaigns_are_chosen_alone_or_as_a_group() -> None:
    assert chosen_campaigns(["crash:run", "kill"]) == ["crash:run", "kill"]
    assert "damage:atlas-data" in chosen_campaigns(["damage"])
    assert chosen_campaigns([]) == list(CAMPAIGNS)


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


def test_a_full_disk_at_any_write_of_any_work() -> None:
    for work in some("train", "export"):
        assert_held(full_disk(work, most=2))
