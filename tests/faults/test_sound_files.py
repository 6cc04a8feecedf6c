"""Sound that is damaged or cut is refused; of a long file no more is decoded than is heard."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from residual_audio.audio.decode import load_audio
from residual_audio.audio.ogg import ogg_crc
from residual_audio.errors import AudioError

RATE_HZ = 16_000
WAVE = np.sin(np.arange(RATE_HZ) * 0.05) * np.random.default_rng(0).uniform(0.1, 0.5, RATE_HZ)


def test_the_checksum_is_the_one_encoders_write(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.ogg", WAVE, RATE_HZ, format="OGG", subtype="VORBIS")
    page = (tmp_path / "x.ogg").read_bytes()
    page = page[: 27 + page[26] + sum(page[27 : 27 + page[26]])]
    written = int.from_bytes(page[22:26], "little")
    assert ogg_crc(page[:22] + bytes(4) + page[26:]) == written


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_every_flipped_bit_of_an_ogg_file_is_found(tmp_path: Path, subtype: str) -> None:
    path = tmp_path / "x.ogg"
    soundfile.write(path, WAVE, RATE_HZ, format="OGG", subtype=subtype)
    data = path.read_bytes()
    load_audio(path, RATE_HZ)
    rng = np.random.default_rng(1)
    for _ in range(200):
        at = int(rng.integers(len(data)))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :])
        with pytest.raises(AudioError, match=r"x\.ogg"):
            load_audio(path, RATE_HZ)


def test_a_lost_page_in_the_middle_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.ogg"
    soundfile.write(path, np.tile(WAVE, 5), RATE_HZ, format="OGG", subtype="VORBIS")
    data = path.read_bytes()
    starts = [i for i in range(len(data)) if data[i : i + 5] == b"OggS\0"]
    assert len(starts) > 4
    path.write_bytes(data[: starts[-3]] + data[starts[-2] :])
    with pytest.raises(AudioError, match="pages are missing"):
        load_audio(path, RATE_HZ)


@pytest.mark.parametrize("kind", ["WAV", "AIFF", "AU", "CAF", "W64", "FLAC", "OGG", "MP3", "RF64"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_cut_files_of_every_container_are_refused(tmp_path: Path, kind: str, share: float) -> None:
    path = tmp_path / f"x.{kind.lower()}"
    soundfile.write(path, WAVE, RATE_HZ, format=kind)
    data = path.read_bytes()
    assert len(load_audio(path, RATE_HZ)) >= len(WAVE)
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(AudioError, match=r"cut short|damaged"):
        load_audio(path, RATE_HZ, max_s=0.01)


def test_cut_m4a_is_refused_though_only_its_beginning_is_heard(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "x.m4a"
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("aac", rate=RATE_HZ)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(WAVE.astype(np.float32)[None], "fltp", "mono")
        frame.sample_rate = RATE_HZ
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)
    load_audio(path, RATE_HZ)
    data = path.read_bytes()
    path.write_bytes(data[: int(0.9 * len(data))])
    with pytest.raises(AudioError, match="cut short"):
        load_audio(path, RATE_HZ, max_s=0.1)


LONG = """
import resource, sys
from residual_audio.audio.windows import fit_windows
from residual_audio.data.registry import load_dataset
from residual_audio.passes.sources import cut_clips

class Ear:
    sample_rate_hz = 48000
    def windows(self, wave, long): return fit_windows(wave, 48000, long=long)
    window_s = 1.0
    def reads_s(self, long): return None if long == "tile" else 1.0

data = load_dataset("folder", sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert cut_clips(Ear(), data, "first")(data.clips[0]).shape == (1, 48000)
assert cut_clips(Ear(), data, "center")(data.clips[0]).shape == (1, 48000)
assert len(next(cut_clips(Ear(), data, "tile")(data.clips[0]))) == 48000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_of_a_long_clip_only_the_window_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with soundfile.SoundFile(tmp_path / "data" / "long.flac", "w", 48_000, 1) as file:
        for _ in range(40):
            file.write(np.zeros(48_000 * 30))
    done = subprocess.run(
        [sys.executable, "-c", LONG, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "RESIDUAL_AUDIO_CACHE": str(tmp_path / "cache")},
    )
    assert int(done.stdout) < 120_000  # kB; the twenty minutes take 230,000


def test_an_mp3_that_shrinks_while_it_is_scanned_is_no_crash(tmp_path: Path) -> None:
    """Mapped, this ended the process with SIGBUS."""
    from residual_audio.audio.integrity import scan_mpeg

    path = tmp_path / "x.mp3"
    soundfile.write(path, np.tile(WAVE, 20), RATE_HZ, format="MP3")

    class Shrinking:
        def __init__(self) -> None:
            self.file = path.open("rb")

        def seek(self, at: int) -> int:
            os.truncate(path, 5000)
            return self.file.seek(at)

        def read(self, n: int = -1) -> bytes:
            return self.file.read(n)

    found = scan_mpeg(Shrinking())  # type: ignore[arg-type]
    assert found is None or found.problem is not None
