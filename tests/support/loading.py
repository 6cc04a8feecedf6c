"""Models loaded in a process of their own, with limits: what it answered."""

from __future__ import annotations

import subprocess
import sys

LOAD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30,) * 2)
from pathlib import Path
from residual_audio.errors import ResidualAudioError
from residual_audio.models.registry import load_model
for folder in sys.argv[1:]:
    try:
        load_model(folder, "cpu")
        print("loaded")
    except ResidualAudioError as error:
        print("refused", str(error)[:150].replace(chr(10), " "))
# the peak of this program alone: `getrusage` begins with that of whoever started it
status = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def answers_of(names: list[str]) -> list[str]:
    """`loaded` or `refused …` of each, within two minutes, 6 GB of addresses and 2.5 GB at most."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *names], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *answers, peak_kb = done.stdout.splitlines()
    assert int(peak_kb) < 2_500_000
    return answers
