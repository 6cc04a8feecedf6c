"""Children to be killed: forked from a clean server that has everything imported.

A fork of the caller itself may hang for ever: the threads of its numerical libraries are not there
in the child, their locks are.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess

LONGEST_S = 300.0
_SLICE_S = 2.0
PRELOADED = (
    "residual_audio.benchmarks.faults.works",
    "residual_audio.cli.app",
    "residual_audio.cli.evaluate",
    "residual_audio.cli.extract",
    "huggingface_hub.file_download",
    "matplotlib.pyplot",
    "pandas",
    "pyarrow.parquet",
    "torch._dynamo",
    "residual_audio.ablation.ablation",
    "residual_audio.adaptation.adapted",
    "residual_audio.adaptation.adapted_captions",
    "residual_audio.analysis.analysis",
    "residual_audio.atlas.build",
    "residual_audio.data.synthetic",
    "residual_audio.direct.time_map",
    "residual_audio.embeddings.of_texts",
    "residual_audio.evaluation.by_centroids",
    "residual_audio.evaluation.retrieval",
    "residual_audio.evaluation.zero_shot",
    "residual_audio.models.text_small",
    "residual_audio.pipeline.heard_clips",
    "residual_audio.report.figures",
    "residual_audio.report.page",
    "residual_audio.report.write",
    "residual_audio.training.training",
)
"""What the works import when they get there: thousands of children need not."""


def start(work: Callable[[], None], daemon: bool = True) -> ForkServerProcess:
    """Begin it in a child of one thread; `work` must be picklable. One that is no daemon may have
    children itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        child = context.Process(target=_do, args=(work,), daemon=daemon)
        child.start()
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
    return child


def ended(child: ForkServerProcess, longest_s: float = LONGEST_S) -> int:
    """Its exit code: 0 at its end, the negative number of the signal that killed it; one that
    takes longer is killed and counts as 124. Time in which this process is stopped, and its child
    with it, is not the child's: it is counted in slices."""
    for _ in range(max(1, math.ceil(longest_s / _SLICE_S))):
        child.join(min(_SLICE_S, longest_s))
        if child.exitcode is not None:
            break
    late = child.exitcode is None
    if late:
        child.kill()
        child.join()
    code = 124 if late else child.exitcode
    child.close()
    assert code is not None
    return code


def in_child(work: Callable[[], None]) -> int:
    """Run it to its end in a child; its exit code as `ended` gives it."""
    return ended(start(work))


def quietly(work: Callable[[], None]) -> int:
    """The exit code of work in this process, which ends with it."""
    try:
        work()
    except SystemExit as asked:
        return asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    except KeyboardInterrupt:  # the campaign was stopped, and says so itself
        return 130
    except Exception as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        return 1
    return 0


def _do(work: Callable[[], None]) -> None:
    sys.exit(quietly(work))
