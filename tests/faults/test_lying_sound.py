"""Headers that lie, tags nobody can read, files that name others: found by the fault campaigns."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from residual_audio.audio.decode import load_audio
from residual_audio.errors import AudioError

RATE_HZ = 44_100
WAVE = np.random.default_rng(0).normal(0, 0.1, 2 * RATE_HZ)
PLAYLISTS = {
    "concat.wav": "ffconcat version 1.0\nfile other.wav\n",
    "list.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:1.0,\nother.wav\n#EXT-X-ENDLIST\n",
    "list.mp3": "#EXTM3U\nother.wav\n",
}


def flip(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def heard(path: Path) -> bytes | str:
    try:
        return load_audio(path, RATE_HZ).tobytes()
    except AudioError as error:
        return "refused" if path.name in str(error) else str(error)


@pytest.mark.parametrize("at", [18, 19, 20, 21, 22, 23, 24, 25])
def test_every_flipped_bit_of_rate_and_length_of_flac_is_found(tmp_path: Path, at: int) -> None:
    """Believed, they made sound of another pitch, or left out its end."""
    path = tmp_path / "x.flac"
    for bit in range(8):
        soundfile.write(path, WAVE, RATE_HZ)
        want = load_audio(path, RATE_HZ)
        flip(path, at, bit)
        assert heard(path) in (want.tobytes(), "refused")


@pytest.mark.parametrize("rate_hz", [8000, 11_025, 12_345, 37_800, 48_000, 96_000, 255_000])
@pytest.mark.parametrize("channels", [1, 2])
def test_whole_flac_of_every_way_to_say_its_rate(
    tmp_path: Path, rate_hz: int, channels: int
) -> None:
    wave = WAVE[:30_000].reshape(-1, channels)
    for n in (1, 16, 4096, 4097, len(wave)):
        soundfile.write(tmp_path / "x.flac", wave[:n], rate_hz)
        assert len(load_audio(tmp_path / "x.flac", rate_hz)) == n


def test_an_mp3_in_which_a_frame_is_no_frame_any_more_is_damaged(tmp_path: Path) -> None:
    """The decoder steps over it, or gives up: sound was lost without a word."""
    path = tmp_path / "x.mp3"
    soundfile.write(path, WAVE, RATE_HZ, format="MP3")
    whole = path.read_bytes()
    starts = [i for i in range(len(whole)) if whole[i : i + 2] == b"\xff\xfb"]
    for start in starts[5:40:7]:
        for at, bit in ((start, 3), (start + 1, 4)):
            path.write_bytes(whole)
            flip(path, at, bit)
            with pytest.raises(AudioError, match=r"damaged|cut short"):
                load_audio(path, RATE_HZ)


@pytest.mark.parametrize("kind", ["WAV", "RF64", "AIFF"])
def test_samples_behind_those_that_the_header_promises_are_not_left_out(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, WAVE, RATE_HZ, format=kind)
    data, n_bytes = bytearray(path.read_bytes()), 2 * len(WAVE)
    wanted, order = (n_bytes + 8, ">") if kind == "AIFF" else (n_bytes, "<")
    width = "Q" if kind == "RF64" else "I"
    size = struct.pack(order + width, wanted)
    at = data.index(size, 16)
    data[at : at + len(size)] = struct.pack(order + width, wanted // 100)
    path.write_bytes(data)
    with pytest.raises(AudioError, match="more follow"):
        load_audio(path, RATE_HZ)


@pytest.mark.parametrize("behind", [b"LIST\x04\0\0\0INFO", b"\0" * 40, b"\xff\xfe\xfd", b"id3 x"])
def test_chunks_and_padding_behind_the_samples_are_no_damage(tmp_path: Path, behind: bytes) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, WAVE, RATE_HZ)
    want = load_audio(path, RATE_HZ)
    path.write_bytes(path.read_bytes() + behind)
    assert np.array_equal(load_audio(path, RATE_HZ), want)


def write_m4a(path: Path) -> None:
    av = pytest.importorskip("av")
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16_000)
        stream.layout = "mono"
        wave = (np.sin(np.arange(16_000) * 0.05) * 0.3).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(wave[None], "fltp", "mono")
        frame.sample_rate = 16_000
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)


def test_more_channels_than_eight_do_not_end_the_process(tmp_path: Path) -> None:
    """One flipped bit makes sixteen channels of one: read as planes, a segmentation fault."""
    path = tmp_path / "x.m4a"
    write_m4a(path)
    flip(path, path.read_bytes().index(b"mdat") + 26, 4)
    code = (
        "import sys; from residual_audio.audio.decode import load_audio\n"
        "try: print(len(load_audio(sys.argv[1], 16000)))\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_eight_channels_are_averaged(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "x.mkv"
    wave = np.random.default_rng(0).integers(-9999, 9999, (4096, 8)).astype(np.int16)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=16_000)
        stream.layout = "7.1"
        frame = av.AudioFrame.from_ndarray(wave.reshape(1, -1), "s16", "7.1")
        frame.sample_rate = 16_000
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
    found = load_audio(path, 16_000)
    np.testing.assert_allclose(found, wave.mean(axis=1) / 2**15, atol=1e-6)


def test_tags_that_are_no_utf8_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "x.m4a"
    write_m4a(path)
    want = load_audio(path, 16_000)
    for at in (20, 23, 27):
        flip(path, at, 7)
        assert np.array_equal(load_audio(path, 16_000), want)


@pytest.mark.parametrize("name", PLAYLISTS)
def test_a_file_that_names_another_is_no_sound(tmp_path: Path, name: str) -> None:
    soundfile.write(tmp_path / "other.wav", WAVE, RATE_HZ)
    (tmp_path / name).write_text(PLAYLISTS[name])
    with pytest.raises(AudioError, match=name):
        load_audio(tmp_path / name, RATE_HZ)
