"""A real Ray cluster of two nodes on this machine: workers and a node die, the bytes stay."""

from __future__ import annotations

import dataclasses
import faulthandler
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest
import ray
from containers import write_tars
from ray.cluster_utils import Cluster
from ray_work import SLEEPS, Sounds, no_set_up, nothing, work
from tiny_model import tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.engine import Where, open_engine, ray_crew
from residual_audio.engine import ray as ray_engine
from residual_audio.errors import EngineError, StoreError
from residual_audio.extraction.batch_parts import (
    RunPart,
    extract_part,
    finish_parts,
    plan_parts,
)
from residual_audio.extraction.extraction import extract
from residual_audio.models import native
from residual_audio.progress import Progress
from residual_audio.store.verify import verify_store
from residual_audio.surface.gain_studies import Studied, search_settings
from residual_audio.surface.runs import Run

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    faulthandler.dump_traceback_later(900, exit=True)  # a cluster that hangs must not hang CI
    here = pytest.MonkeyPatch()
    here.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers import what tests import
    found = Cluster(initialize_head=True, head_node_args=NODE)
    yield found
    if ray.is_initialized():
        ray.shutdown()
    found.shutdown()
    here.undo()
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(ray_crew, "LOOK_S", 0.5)
    monkeypatch.setattr(ray_crew, "START_S", 100.0)


def shards(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "store").glob("shard-*")}


class LoseANode(Progress):
    """When the first shards are there, a node goes."""

    def __init__(self, cluster: Cluster, node) -> None:
        self.cluster, self.node, self.n = cluster, node, 0

    def advance(self, n: int = 1) -> None:
        self.n += n
        if self.node is not None and self.n >= 4:
            self.cluster.remove_node(self.node, allow_graceful=False)
            self.node = None


def test_the_same_bytes_though_a_worker_and_a_node_are_lost(cluster, tmp_path) -> None:
    node = cluster.add_node(**{k: v for k, v in NODE.items() if k != "include_dashboard"})
    name = str(tmp_path / "tiny")
    native.save(tiny_model(text=False), Path(name))
    sounds = load_dataset("synthetic", n_clips=22, duration_s=1.0)
    mark = tmp_path / "died"
    deadly = dataclasses.replace(sounds, make=Sounds(sounds.clips[5].id, mark))
    options = {"shard_size": 2, "batch_size": 2, "device": "cpu", "n_threads": 1}
    watch = LoseANode(cluster, node)
    found = extract(
        name, deadly, tmp_path / "ray", engine="ray", processes=2,
        ray_address=cluster.address, progress=watch, **options,
    )  # fmt: skip
    assert mark.exists()
    assert watch.node is None
    assert watch.n == found.n_ok == 22
    assert found.n_shards_made == 11
    extract(name, sounds, tmp_path / "here", **options)
    assert shards(tmp_path / "ray") == shards(tmp_path / "here")
    assert len(shards(tmp_path / "ray")) == 11
    assert verify_store(tmp_path / "ray") == []
    assert not ray.is_initialized()


class Stopped(BaseException):
    pass


class StopAfter(Progress):
    def __init__(self, n_clips: int) -> None:
        self.left = n_clips

    def advance(self, n: int = 1) -> None:
        self.left -= n
        if self.left <= 0:
            raise Stopped


def test_five_ways_give_the_same_shards(cluster, tmp_path) -> None:
    """Of tar shards, whose clips no store shard agrees with."""
    name = str(tmp_path / "tiny")
    native.save(tiny_model(text=False), Path(name))
    data = load_dataset(f"wds:{write_tars(tmp_path, n=10)}", label="category")
    how = {"shard_size": 3, "batch_size": 2, "device": "cpu", "n_threads": 1, "capture": "all"}

    extract(name, data, tmp_path / "here", **how)
    whole = shards(tmp_path / "here")
    assert len(whole) == 4

    extract(name, data, tmp_path / "processes", processes=2, **how)
    assert shards(tmp_path / "processes") == whole

    extract(name, data, tmp_path / "ray", engine="ray", ray_address=cluster.address, **how)
    assert shards(tmp_path / "ray") == whole

    plan_parts(name, data, tmp_path / "parts", **how)
    for number in (2, 1):
        extract_part(name, data, tmp_path / "parts", RunPart(number, 2), **how)
    assert finish_parts(name, data, tmp_path / "parts", **how).n_ok == 10
    assert shards(tmp_path / "parts") == whole

    with pytest.raises(Stopped):
        extract(name, data, tmp_path / "resumed", progress=StopAfter(5), **how)
    assert 0 < len(shards(tmp_path / "resumed")) < 4
    extract(name, data, tmp_path / "resumed", **how)
    assert shards(tmp_path / "resumed") == whole


def test_in_a_job_that_runs_already_one_bad_task_does_not_end_the_others(
    cluster, monkeypatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    ray.init(log_to_driver=False)
    with open_engine(Where("ray", processes=4)) as engine:
        found = {done.number: done for done in engine.run(list(range(8)), nothing, work)}
        assert isinstance(found[3].error, StoreError)
        assert isinstance(found[5].error, EngineError)
        assert "3 workers died over it" in str(found[5].error)
        assert all(found[i].result == 2 * i for i in (0, 1, 2, 4, 6, 7))
        with pytest.raises(StoreError, match="nothing to begin with"):
            list(engine.run([1], no_set_up, work))
    assert ray.is_initialized()
    ray.shutdown()
    with open_engine(Where("ray")) as engine:  # joined by RAY_ADDRESS, which has its own cores
        assert engine.gpus_each == 0
        assert [done.result for done in engine.run([4], nothing, work)] == [8]
    assert not ray.is_initialized()


def test_a_sweep_gives_the_same_with_its_folds_elsewhere(cluster, tmp_path) -> None:
    data = load_dataset("synthetic", n_clips=36, duration_s=1.0, classes=["siren", "organ"])
    run = Run(tmp_path / "run")
    extract(tiny_model(), data, run.folder, capture="heads,direct", device="cpu")
    studied = Studied(run.folder, device="cpu")
    here = search_settings(studied, n_trials=1)
    shutil.move(run.folder / "sweeps", tmp_path / "kept")
    where = Where("ray", address=cluster.address)
    there = search_settings(studied, n_trials=1, where=where)
    assert there == here
    # a study a fold, each in a file of its own: nobody waits for another's lock
    files = sorted(path.name for path in (run.folder / "sweeps").iterdir())
    assert files == [f"direct-{row['fold']}.db" for row in there.folds]
    assert len(there.trials) == len(files) == 5


def test_workers_that_cannot_begin_and_a_cluster_that_goes_away(cluster, monkeypatch) -> None:
    monkeypatch.setattr(ray_crew, "START_S", 1.0)
    monkeypatch.setattr(ray_engine, "GONE_S", 1.0)
    where = Where("ray", address=cluster.address, cpus_each=64)
    with (
        open_engine(where) as engine,
        pytest.raises(EngineError, match=r"no Ray worker could be started.*asks for 64 cores"),
    ):
        list(engine.run([1], nothing, work))
    monkeypatch.setattr(ray_crew, "START_S", 100.0)
    with open_engine(dataclasses.replace(where, cpus_each=None)) as engine:
        found = engine.run([1, SLEEPS], nothing, work)
        assert next(found).result == 2
        for processes in cluster.head_node.all_processes.values():
            for one in processes:
                one.process.kill()
        with pytest.raises(EngineError, match=r"cluster at .* went away; what is finished is kept"):
            list(found)


def test_an_address_nobody_answers(monkeypatch) -> None:
    monkeypatch.setattr(ray_engine, "ANSWERS_S", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for given in (address, f"ray://{address}"):
        with (
            pytest.raises(EngineError, match=f"nobody answers at the Ray address '{given}'"),
            open_engine(Where("ray", address=given)),
        ):
            pass


def test_what_this_machine_lacks_is_said_at_once() -> None:
    class OneMachine:
        """Stands in for a cluster of our own, which never grows."""

        @staticmethod
        def cluster_resources() -> dict[str, float]:
            return {"CPU": 2.0}

        @staticmethod
        def get_runtime_context() -> object:
            return type("Context", (), {"gcs_address": "here"})

    for asked in (Where("ray", gpus_each=0.5), Where("ray", cpus_each=3)):
        engine = ray_engine.RayEngine(OneMachine, asked, fixed=True)
        with pytest.raises(EngineError, match="there are 2 cores and 0 GPUs"):
            list(engine.run([1], no_set_up, nothing))
