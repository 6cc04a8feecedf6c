"""One clip, one answer: whatever order, threads, processes and modes; and nothing is left."""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.progress import SILENT, Progress
from residual_audio.surface.model import Model, load_model

CLOSE = 1e-6
"""Other batch sizes and numbers of threads add up in another order."""
N_CLIPS, RATE_HZ = 6, 16_000
_LONGEST_S = 120
Vectors = npt.NDArray[np.float32]
_NO_ANSWER: Vectors = np.full((N_CLIPS, 1), np.nan, np.float32)


@cache
def _model() -> Model:
    return load_model("nano", "cpu")


def _clips() -> list[npt.NDArray[np.float32]]:
    draw = np.random.default_rng(0)
    return [draw.normal(0, 0.1, RATE_HZ).astype(np.float32) for _ in range(N_CLIPS)]


def _embed(**options: Any) -> Vectors:
    return _model().embed_audio(_clips(), sample_rate=RATE_HZ, **options)


def same_answer(asked: CampaignSettings = STANDARD) -> list[Campaign]:
    """Bit for bit at one batch size; to 1e-6 over batch sizes and numbers of threads."""
    exact = asked.campaign("same answer: to the bit", "runs, order, threads, processes, modes")
    close = asked.campaign("same answer: to 1e-6", "batch sizes 1 to 16, numbers of threads")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        want = _embed()
        for name, case in EXACT.items():
            exact.attempt(partial(_compare, name, case, want, 0.0))
        for size in (1, 3, 16) if asked.quick else range(1, 17):
            close.attempt(
                partial(_compare, f"batch {size}", partial(_embed, batch_size=size), want, CLOSE)
            )
        for n in (2,) if asked.quick else (2, 3, 4):
            close.attempt(partial(_compare, f"{n} threads", partial(_threads, n), want, CLOSE))
    finally:
        torch.set_num_threads(before)
    return [exact.end(), close.end()]


def _compare(name: str, case: Callable[[], object], want: Vectors, most: float) -> str | None:
    answers = case()
    for found in answers if isinstance(answers, list) else [answers]:
        apart = float(np.abs(np.asarray(found, np.float64) - want).max())
        if not apart <= most:
            return f"{name}: {apart:.1e} apart"
    return None


def _threads(n: int) -> Vectors:
    torch.set_num_threads(n)
    try:
        return _embed()
    finally:
        torch.set_num_threads(1)


def _reversed() -> Vectors:
    """Six clips are one batch: their order in it does not matter to the bit."""
    return _model().embed_audio(_clips()[::-1], sample_rate=RATE_HZ)[::-1]


def _ten_at_once() -> list[Vectors]:
    found: list[Vectors] = []

    def work() -> None:
        torch.set_num_threads(1)
        found.append(_embed())

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LONGEST_S)
    return found if len(found) == 10 else [_NO_ANSWER]


def _elsewhere(_: int) -> Vectors:
    torch.set_num_threads(1)
    return _embed()


def _processes() -> list[Vectors]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context) as pool:
        return list(pool.map(_elsewhere, range(2), timeout=_LONGEST_S))


def _after_fork() -> Vectors:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, _embed().tobytes())  # six short vectors fit into a pipe
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answered = select.select([file], [], [], _LONGEST_S)[0]
        if not answered:
            os.kill(child, signal.SIGKILL)
        data = file.read()
    os.waitpid(child, 0)
    # a child that hung said nothing, which is no answer
    return np.frombuffer(data, np.float32).reshape(N_CLIPS, -1) if data else _NO_ANSWER


class _Embeds(torch.utils.data.Dataset[Vectors]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Vectors:
        return _elsewhere(i)


def _loader() -> list[Vectors]:
    loader = torch.utils.data.DataLoader(
        _Embeds(), batch_size=None, num_workers=1, timeout=_LONGEST_S
    )
    return [np.asarray(found) for found in loader]


def _in_float64() -> Vectors:
    torch.set_default_dtype(torch.float64)
    try:
        return _embed()
    finally:
        torch.set_default_dtype(torch.float32)


def _deterministic() -> Vectors:
    torch.use_deterministic_algorithms(True)
    try:
        return _embed()
    finally:
        torch.use_deterministic_algorithms(False)


def _within(around: Callable[[], Any]) -> Vectors:
    with around():
        return _embed()


@contextmanager
def _training() -> Iterator[None]:
    model = _model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    try:
        yield
        if not all(part.training for part in model.modules()):
            raise AssertionError("the model was left in another mode")
        if any(not torch.equal(v, before[n]) for n, v in model.state_dict().items()):
            raise AssertionError("embedding changed the model")
    finally:
        model.eval()


EXACT: dict[str, Callable[[], Any]] = {
    "again": lambda: [_embed() for _ in range(5)],
    "in another order": _reversed,
    "ten threads at once": _ten_at_once,
    "two processes": _processes,
    "after a fork": _after_fork,
    "in a worker of a loader": _loader,
    "default type float64": _in_float64,
    "default device meta": partial(_within, partial(torch.device, "meta")),
    "autocast": partial(_within, partial(torch.autocast, "cpu", dtype=torch.bfloat16)),
    "inference mode": partial(_within, torch.inference_mode),
    "no grad": partial(_within, torch.no_grad),
    "deterministic mode": _deterministic,
    "a model in training mode": partial(_within, _training),
    "one reader": lambda: _embed(n_threads=1),
    "no reader": lambda: _embed(n_threads=0),
}


class Left(TypedDict):
    """What embeddings leave in a process."""

    embeddings: int
    descriptors: int
    threads: int
    memory_mb: float
    """Resident, from the hundredth on."""


def bench_leaks(embeddings: int = 1000, progress: Progress = SILENT) -> Left:
    """So many calls, each for a file on disk and a sentence; what they leave behind."""
    import tempfile

    import soundfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.wav"
        soundfile.write(path, _clips()[0], RATE_HZ)
        model = _model()
        progress.step("embeddings", embeddings, "calls")
        warm, before = min(100, embeddings // 2), (0, 0, 0.0)
        for i in range(embeddings):
            if i == warm:
                before = _held()
            model.embed_audio([path])
            model.embed_text([f"sound number {i}"])
            progress.advance()
        after = _held()
    return {
        "embeddings": embeddings,
        "descriptors": after[0] - before[0],
        "threads": after[1] - before[1],
        "memory_mb": round(after[2] - before[2], 2),
    }


def _held() -> tuple[int, int, float]:
    gc.collect()
    own = Path("/proc/self")
    pages = int((own / "statm").read_text().split()[1])
    resident_mb = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return len(os.listdir(own / "fd")), len(os.listdir(own / "task")), resident_mb


MOST_LEFT_MB = 8.0
"""Allocators keep some; a leak of one clip's samples a call would be 60."""


def nothing_left(asked: CampaignSettings = STANDARD, embeddings: int = 1000) -> list[Campaign]:
    """Descriptors, threads, memory after so many embeddings; one case each."""
    campaign = asked.campaign("same answer: nothing left", "no handle, thread or memory stays")
    if campaign.complete:
        return [campaign]
    found = bench_leaks(embeddings, asked.progress)
    campaign.attempt(
        lambda: f"{found['descriptors']} descriptors" if found["descriptors"] else None
    )
    campaign.attempt(lambda: f"{found['threads']} threads" if found["threads"] else None)
    memory = found["memory_mb"]
    campaign.attempt(lambda: f"{memory} MB" if memory > MOST_LEFT_MB else None)
    return [campaign.end()]
