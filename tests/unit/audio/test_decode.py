"""Decoding: every good file gives its samples, every bad one a reason."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from residual_audio.audio import codecs
from residual_audio.audio.decode import downmix, load_audio, resample
from residual_audio.errors import AudioError, InputError, MissingExtraError

RATE = 44_100


@pytest.fixture
def noise() -> np.ndarray:
    return (0.1 * np.random.default_rng(0).standard_normal(2 * RATE)).astype(np.float32)


def write(path: Path, samples: np.ndarray, rate: int = RATE, **options: str) -> Path:
    soundfile.write(path, samples, rate, **options)
    return path


FORMATS = {
    "wav": {"format": "WAV"},
    "rf64": {"format": "RF64"},
    "flac": {"format": "FLAC"},
    "ogg": {"format": "OGG", "subtype": "VORBIS"},
    "mp3": {"format": "MP3"},
    "aiff": {"format": "AIFF"},
}


@pytest.mark.parametrize("kind", FORMATS)
def test_content_decides_not_the_name(tmp_path, noise, kind):
    path = write(tmp_path / "clip.bin", noise, **FORMATS[kind])
    for name in ("clip.raw", "clip.gsm", "clip.txt", "a b#ü.mp3"):
        named = path.rename(tmp_path / name)
        samples = load_audio(named, RATE)
        assert len(samples) == len(noise)
        expected = soundfile.read(io.BytesIO(named.read_bytes()), dtype="float32")[0]
        # Read in blocks, an MP3 may differ from itself read at once in the last bit.
        np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-7 if kind == "mp3" else 0)
        path = named


def test_opus_is_decoded_at_its_rate(tmp_path, noise):
    path = write(tmp_path / "clip.opus", noise[:48_000], 48_000, format="OGG", subtype="OPUS")
    assert len(load_audio(path, 16_000)) == 16_000


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_sample_formats(tmp_path, noise, subtype):
    path = write(tmp_path / "clip.wav", noise.astype(np.float64), subtype=subtype)
    step = {"PCM_U8": 2**-7, "PCM_16": 2**-15, "PCM_24": 2**-23}.get(subtype, 2**-24)
    samples = load_audio(path, RATE)
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, noise, atol=step)


@pytest.mark.parametrize("channels", [2, 8, 300])
def test_downmix_is_the_mean_of_the_channels(tmp_path, channels):
    many = np.random.default_rng(1).uniform(-1, 1, (20_000, channels)).astype(np.float32)
    path = write(tmp_path / "many.wav", many, subtype="FLOAT")
    expected = many.mean(axis=1, dtype=np.float64).astype(np.float32)
    np.testing.assert_array_equal(load_audio(path, RATE), expected)
    np.testing.assert_array_equal(downmix(many), expected)


@pytest.mark.parametrize("rate", [8_000, 22_050, 32_000, 48_000, 96_000])
def test_resampling_is_that_of_the_whole_clip(tmp_path, noise, rate):
    long = np.tile(noise, 3)  # several blocks
    path = write(tmp_path / "clip.wav", long, subtype="FLOAT")
    expected = soxr.resample(long, RATE, rate, quality="HQ")
    np.testing.assert_array_equal(load_audio(path, rate), expected)
    np.testing.assert_array_equal(resample(long, RATE, rate), expected)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("rate", [RATE, 48_000])
def test_the_beginning_alone_equals_the_beginning_of_the_whole(tmp_path, noise, kind, rate):
    path = write(tmp_path / "clip", np.tile(noise, 4), **FORMATS[kind])
    whole = load_audio(path, rate)
    for max_s in (0.001, 1.0, 3.3, 100.0):
        part = load_audio(path, rate, max_s=max_s)
        np.testing.assert_array_equal(part, whole[: round(max_s * rate)])


def test_a_tone_survives_resampling(tmp_path):
    t = np.arange(RATE) / RATE
    path = write(tmp_path / "tone.wav", np.sin(2 * np.pi * 440 * t), subtype="FLOAT")
    expected = np.sin(2 * np.pi * 440 * np.arange(32_000) / 32_000)
    np.testing.assert_allclose(
        load_audio(path, 32_000)[2000:-2000], expected[2000:-2000], atol=1e-5
    )


@pytest.mark.parametrize("rate", [16_000, RATE, 48_000])
def test_one_sample_and_silence_are_clips(tmp_path, rate):
    one = load_audio(write(tmp_path / "one.wav", np.array([0.5]), subtype="FLOAT"), rate)
    assert len(one) == 1
    assert np.isfinite(one).all()
    silence = load_audio(write(tmp_path / "silence.wav", np.zeros(RATE)), rate)
    assert len(silence) == rate
    assert not silence.any()


# --- files that are not whole ---------------------------------------------------------------


@pytest.mark.parametrize("kind", [*FORMATS, "opus"])
@pytest.mark.parametrize("keep", [0.02, 0.3, 0.6, 0.95, -1])
def test_a_file_cut_short_is_found_out(tmp_path, noise, kind, keep):
    options = FORMATS.get(kind, {"format": "OGG", "subtype": "OPUS"})
    whole = write(tmp_path / "whole", noise, 48_000, **options).read_bytes()
    path = tmp_path / f"cut.{kind}"
    path.write_bytes(whole[: int(len(whole) * keep) if keep > 0 else keep])
    for max_s in (None, 0.1):
        with pytest.raises(AudioError, match="cut short") as caught:
            load_audio(path, RATE, max_s=max_s)
        assert str(path) in str(caught.value)


def wav_bytes(samples: np.ndarray, data_size: int | None = None, rate: int = RATE) -> bytes:
    data = (samples * 32767).astype("<i2").tobytes()
    size = len(data) if data_size is None else data_size
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    head = struct.pack("<4sI4s", b"RIFF", min(36 + size, 0xFFFF_FFFF), b"WAVE")
    return head + fmt + struct.pack("<4sI", b"data", size) + data


@pytest.mark.parametrize("size", [0xFFFF_FFFF, 0x7FFF_FFFF, 0x8000_0000, 0x7FFF_FFDB])
def test_a_size_never_filled_in_is_not_a_cut(tmp_path, noise, size):
    path = tmp_path / "piped.wav"
    path.write_bytes(wav_bytes(noise, size))
    assert len(load_audio(path, RATE)) == len(noise)


def test_chunks_around_the_samples_do_not_matter(tmp_path, noise):
    whole = wav_bytes(noise)
    extra = struct.pack("<4sI", b"LIST", 5) + b"abcde\0"
    path = tmp_path / "chunks.wav"
    path.write_bytes(whole[:12] + extra + whole[12:] + extra)
    assert len(load_audio(path, RATE)) == len(noise)


def without_length(path: Path) -> Path:
    """The same MP3 without its information frame, as a stream is recorded."""
    from residual_audio.audio.integrity import MpegHeader

    data = path.read_bytes()
    header = MpegHeader.parse(data)
    assert header is not None
    assert b"Xing" in data[: header.n_bytes] or b"Info" in data[: header.n_bytes]
    bare = path.with_name("bare.mp3")
    bare.write_bytes(data[header.n_bytes :])
    return bare


def test_an_mp3_that_does_not_say_its_length_is_read_to_its_end(tmp_path, noise):
    # Loud, then silent, at a variable bit rate: a length guessed from the first frames is far off.
    uneven = np.concatenate([4 * noise, np.zeros(20 * RATE, dtype=np.float32)]).clip(-1, 1)
    path = tmp_path / "uneven.mp3"
    with soundfile.SoundFile(
        path, "w", RATE, 1, format="MP3", bitrate_mode="VARIABLE", compression_level=0.5
    ) as file:
        file.write(uneven)
    samples = load_audio(without_length(path), RATE)
    assert abs(len(samples) - len(uneven)) < 3 * 1152
    with_length = load_audio(path, RATE)
    assert len(with_length) == len(uneven)
    # The decoder's delay is not trimmed without the information frame; the sound is the same.
    lag = int(np.argmax(np.correlate(samples[:20_000], with_length[5_000:9_000]))) - 5_000
    np.testing.assert_allclose(
        samples[5_000 + lag : 80_000 + lag], with_length[5_000:80_000], atol=1e-4
    )


def test_an_mp3_behind_a_tag_and_before_one(tmp_path, noise):
    path = write(tmp_path / "clip.mp3", noise)
    tag = b"ID3\x03\0\0" + bytes([0, 0, 2, 0]) + bytes(256)
    tagged = tmp_path / "tagged.mp3"
    tagged.write_bytes(tag + path.read_bytes() + b"TAG".ljust(128, b"\0"))
    np.testing.assert_array_equal(load_audio(tagged, RATE), load_audio(path, RATE))
    tagged.write_bytes(tag + path.read_bytes()[:-50])
    with pytest.raises(AudioError, match="cut short"):
        load_audio(tagged, RATE)


# --- files that are something else ----------------------------------------------------------


def test_files_that_are_no_sound(tmp_path):
    cases = {
        "empty.wav": (b"", "empty"),
        "text.wav": (b"this is a text, not a sound\n" * 20, "not a sound file"),
        "wide.wav": ("this is a text".encode("utf-16") * 20, "not a sound file"),
        "picture.mp3": (b"\x89PNG\r\n\x1a\n" + bytes(500), "not a sound file"),
        "zeros.flac": (bytes(5000), "not a sound file"),
        "zero_hz.wav": (wav_bytes(np.zeros(100), rate=0), "0 Hz"),
        "one_hz.wav": (wav_bytes(np.zeros(100), rate=1), "1 Hz"),
        "no_samples.wav": (wav_bytes(np.zeros(0)), "no samples"),
    }
    for name, (content, reason) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(AudioError, match=reason) as caught:
            load_audio(path, 48_000)
        assert name in str(caught.value)


@pytest.mark.parametrize("kind", ["flac", "ogg", "aiff"])
def test_no_samples_in_other_formats(tmp_path, kind):
    path = write(tmp_path / f"none.{kind}", np.zeros(0), **FORMATS[kind])
    with pytest.raises(AudioError):
        load_audio(path, 48_000)


def test_a_folder_a_missing_file_and_a_pipe(tmp_path):
    with pytest.raises(AudioError, match="is a folder"):
        load_audio(tmp_path, 48_000)
    with pytest.raises(AudioError, match="does not exist"):
        load_audio(tmp_path / "gone.wav", 48_000)
    os.mkfifo(tmp_path / "fifo.wav")
    with pytest.raises(AudioError, match="not a regular file"):
        load_audio(tmp_path / "fifo.wav", 48_000)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_that_are_not_finite(tmp_path, noise, value, channels):
    broken = np.stack([noise] * channels, axis=1)
    broken[70_000, 0] = value
    path = write(tmp_path / "broken.wav", broken, subtype="FLOAT")
    with pytest.raises(AudioError, match=r"NaN or infinite .* sample 70000"):
        load_audio(path, 48_000)


def test_a_value_too_large_for_float32(tmp_path):
    path = write(tmp_path / "huge.wav", np.array([0.0, 1e300]), subtype="DOUBLE")
    with pytest.raises(AudioError, match="infinite"):
        load_audio(path, 48_000)


def test_nonsense_rates():
    with pytest.raises(InputError):
        load_audio("x.wav", 0)
    with pytest.raises(InputError):
        resample(np.zeros(0), 8000, 16_000)


# --- other codecs ---------------------------------------------------------------------------


def encode_aac(path: Path, samples: np.ndarray) -> Path:
    av = pytest.importorskip("av", reason="the extra 'codecs' is not installed")
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("aac", rate=RATE, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.rate = RATE
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return path


def test_aac_through_the_codecs_extra(tmp_path):
    t = np.arange(2 * RATE) / RATE
    tone = (0.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)
    path = encode_aac(tmp_path / "tone.wav", tone)  # the name lies
    samples = load_audio(path, RATE)
    assert abs(len(samples) - len(tone)) <= 2 * 1024
    spectrum = np.abs(np.fft.rfft(samples[RATE // 2 : RATE // 2 + RATE]))
    assert int(spectrum.argmax()) == 440
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(AudioError, match="cut short"):
        load_audio(path, RATE)


def test_the_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(codecs, "available", lambda: False)
    path = tmp_path / "clip.m4a"
    path.write_bytes(b"\0\0\0\x18ftypM4A " + bytes(200))
    with pytest.raises(MissingExtraError, match=r"residual-audio\[codecs\]"):
        load_audio(path, 48_000)
    text = tmp_path / "text.wav"
    text.write_text("not a sound")
    with pytest.raises(AudioError, match=r"residual-audio\[codecs\]"):
        load_audio(text, 48_000)


def test_real_recordings(shared_dir):
    folder = shared_dir / "data" / "esc50-folds1-4" / "audio"
    paths = sorted(folder.glob("*.ogg"))[::400]
    assert paths
    for path in paths:
        samples = load_audio(path, 32_000)
        assert len(samples) == 5 * 32_000
        assert np.isfinite(samples).all()


@pytest.mark.parametrize("suffix", ["wav", "flac", "aiff"])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_sixteen_bits_are_what_libsndfile_makes_of_them(tmp_path, suffix, channels):
    path = tmp_path / f"clip.{suffix}"
    values = np.random.default_rng(0).integers(-(2**15), 2**15, (9000, channels), dtype=np.int16)
    values[:2] = [[-(2**15)], [2**15 - 1]]
    soundfile.write(path, values, 16_000, subtype="PCM_16")
    floats = soundfile.read(path, dtype="float32", always_2d=True)[0].astype(np.float64)
    found = load_audio(path, 16_000)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, floats.mean(1).astype(np.float32))
