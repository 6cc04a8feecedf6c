"""Sound files → mono float32 at the rate a model wants; a file that is not whole is an error."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from residual_audio.audio import codecs
from residual_audio.audio.containers import check_au, check_caf, check_mp4, check_w64
from residual_audio.audio.flac import check_flac
from residual_audio.audio.integrity import (
    MpegScan,
    check_chunks,
    information_frame,
    scan_mpeg,
    sniff,
)
from residual_audio.audio.ogg import check_ogg
from residual_audio.errors import AudioError, InputError, UnreachableError

Samples = npt.NDArray[np.float32]

_FRAMES_AT_ONCE = 2**19  # ten seconds in one piece: joining pieces costs as much as decoding
_VALUES_AT_ONCE = 2**21
_LOWEST_RATE_HZ = 100
# Values that float32 cannot hold are read as float64 and rounded once, after the downmix.
_WIDE_SUBTYPES = frozenset({"DOUBLE", "PCM_32", "ALAC_32"})

# what is wrong with a container of so many bytes, or None
_CHECKS: dict[str, Callable[[BinaryIO, int], str | None]] = {
    "riff": check_chunks,
    "aiff": check_chunks,
    "ogg": check_ogg,
    "au": check_au,
    "caf": check_caf,
    "w64": check_w64,
    "mp4": check_mp4,
}


@dataclass(frozen=True)
class SoundBytes:
    """The bytes of a sound file that lies inside another file; used like a path."""

    name: str
    data: bytes

    def __str__(self) -> str:
        return self.name

    def open(self, mode: str = "rb") -> io.BytesIO:
        return io.BytesIO(self.data)

    def read_bytes(self) -> bytes:
        return self.data


_Place = Path | SoundBytes


def load_audio(
    path: str | os.PathLike[str] | SoundBytes, sample_rate_hz: int, max_s: float | None = None
) -> Samples:
    """Decode a file, average its channels and resample it: mono float32 [sample].

    With `max_s` only the beginning is decoded; it is the same, bit for bit, as that of the whole.
    Raises AudioError for anything that is not a whole, finite, non-empty recording.
    """
    if sample_rate_hz < 1:
        raise InputError(f"sample_rate_hz must be positive, got {sample_rate_hz}")
    with ExitStack() as stack:
        source = open_sound(path, stack)
        blocks = resampled(source.blocks, source.rate_hz, sample_rate_hz)
        return _collect(blocks, None if max_s is None else max(1, round(max_s * sample_rate_hz)))


def resample(samples: npt.ArrayLike, from_hz: int, to_hz: int) -> Samples:
    """Band-limited resampling of a mono clip (soxr, high quality, the same every time)."""
    wave = np.ascontiguousarray(samples, dtype=np.float32)
    if wave.ndim != 1 or len(wave) == 0 or min(from_hz, to_hz) < 1:
        raise InputError(
            f"cannot resample an array of shape {wave.shape} from {from_hz} Hz to {to_hz} Hz"
        )
    return _collect(resampled(iter([wave]), from_hz, to_hz), None)


@dataclass(frozen=True)
class OpenedSound:
    """A file opened at its beginning."""

    rate_hz: int
    blocks: Iterator[Samples]
    """Mono, from where the file stands."""
    n_frames: int | None = None
    """By the header; None where only decoding tells."""
    seek: Callable[[int], object] | None = None
    """Puts the file at a frame before the first block is taken; None where that is not exact."""


@dataclass(frozen=True)
class _Examined:
    """What a look at the container tells."""

    kind: str
    problem: str | None = None
    n_promised: int | None = None
    scan: MpegScan | None = None


_examined: OrderedDict[tuple[str, int, int, int], _Examined] = OrderedDict()
"""Containers that were looked at a moment ago: windows of one file follow each other."""
_EXAMINED_MAX = 32


def _examine(path: _Place, n_bytes: int) -> _Examined:
    with path.open("rb") as file:
        kind = sniff(file)
        if kind in _CHECKS:
            return _Examined(kind, _CHECKS[kind](file, n_bytes))
        if kind == "flac":
            return _Examined(kind, *check_flac(file))
        if kind != "mpeg":
            return _Examined(kind)
        scan = scan_mpeg(file)
    return _Examined("unknown") if scan is None else _Examined(kind, scan.problem, None, scan)


def state_of(place: _Place) -> tuple[str, int, int, int]:
    """What stays the same while a file does."""
    if isinstance(place, SoundBytes):
        return place.name, len(place.data), hash(place.data), 0
    state = place.stat()
    return str(place), state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _examine_once(path: _Place, n_bytes: int) -> _Examined:
    """The same, remembered while the file stays as it is."""
    key = state_of(path)
    found = _examined.get(key)
    if found is None:
        found = _examined[key] = _examine(path, n_bytes)
        while len(_examined) > _EXAMINED_MAX:
            _examined.popitem(last=False)
    return found


def open_sound(
    place: str | os.PathLike[str] | SoundBytes, stack: ExitStack, *, again: bool = False
) -> OpenedSound:
    """Open a file that is whole as far as its container says; `again`: one of several openings,
    of which the first has a close look."""
    path: _Place = place if isinstance(place, SoundBytes) else Path(place)
    n_bytes = _check_file(path)
    seen = (_examine_once if again else _examine)(path, n_bytes)
    kind, n_promised, scan = seen.kind, seen.n_promised, seen.scan
    if seen.problem is not None:
        raise AudioError(f"'{path}' {seen.problem}. Copy or download it again.")
    source: Path | io.BytesIO = path if isinstance(path, Path) else path.open()
    if scan is not None and not scan.has_length:
        # Without a length libsndfile guesses one from the bit rate, and stops there.
        source = io.BytesIO(information_frame(scan) + path.read_bytes()[scan.start :])
    if kind in ("foreign", "mp4") or (kind == "flac" and n_promised is None):
        return OpenedSound(*codecs.open_blocks(_opened(path, stack), str(path), stack))
    try:
        sound = stack.enter_context(_sound_file(source, stack))
    except soundfile.LibsndfileError as error:
        # Raw AAC behind a tag, Ogg Speex, rarer containers: the other decoder may know them.
        if kind in ("unknown", "ogg") and codecs.available():
            try:
                return OpenedSound(*codecs.open_blocks(_opened(path, stack), str(path), stack))
            except AudioError:
                raise AudioError(_not_audio(path, kind, error)) from error
        raise AudioError(_not_audio(path, kind, error)) from error
    if sound.samplerate < _LOWEST_RATE_HZ:
        raise AudioError(
            f"'{path}' says its sample rate is {sound.samplerate} Hz: its header is damaged"
        )
    if n_promised is not None:
        _reach_end(path, sound, n_promised)
    # a frame of MPEG sound may lean on bytes of many before it: it is only read from its beginning
    seek = None if scan is not None else sound.seek
    blocks = _sound_blocks(path, sound, n_promised if scan is None else scan.n_least)
    return OpenedSound(sound.samplerate, blocks, sound.frames, seek)


def _opened(path: _Place, stack: ExitStack) -> BinaryIO:
    file: BinaryIO = path.open("rb")
    return stack.enter_context(file)


def _check_file(path: _Place) -> int:
    if isinstance(path, SoundBytes):
        if not path.data:
            raise AudioError(f"'{path}' is empty (0 bytes)")
        return len(path.data)
    try:
        if path.is_dir():
            raise AudioError(f"'{path}' is a folder, not a sound file")
        n_bytes = path.stat().st_size
    except FileNotFoundError as error:
        raise UnreachableError(f"'{path}' does not exist") from error
    except OSError as error:
        raise UnreachableError(f"'{path}' cannot be read: {error}") from error
    except ValueError as error:  # a name with a zero byte
        raise AudioError(f"'{path}' cannot be read: {error}") from error
    if not path.is_file():
        raise AudioError(f"'{path}' is not a regular file")
    if n_bytes == 0:
        raise AudioError(f"'{path}' is empty (0 bytes); copy or download it again")
    if not os.access(path, os.R_OK):
        raise UnreachableError(f"'{path}' cannot be read: permission denied")
    return n_bytes


def _sound_file(source: Path | io.BytesIO, stack: ExitStack) -> soundfile.SoundFile:
    if isinstance(source, io.BytesIO):
        return soundfile.SoundFile(source)
    # A descriptor, not a name: libsndfile must not be led by the extension.
    file = stack.enter_context(source.open("rb"))
    return soundfile.SoundFile(file.fileno(), closefd=False)


def _reach_end(path: _Place, sound: soundfile.SoundFile, n_promised: int) -> None:
    """A FLAC file has its last sample, or it is cut short; found without decoding all of it."""
    try:
        sound.seek(n_promised - 1)
        found = len(sound.read(1, dtype="float32")) == 1
        sound.seek(0)
    except soundfile.LibsndfileError:
        found = False
    if not found:
        raise _cut_short(path, f"its header promises {n_promised} samples, the last is missing")


def _sound_blocks(
    path: _Place, sound: soundfile.SoundFile, n_promised: int | None
) -> Iterator[Samples]:
    dtype = "float64" if sound.subtype in _WIDE_SUBTYPES else "float32"
    if sound.subtype == "PCM_16":
        dtype = "int16"  # libsndfile takes three times as long to make floats of them
    size = max(256, min(_FRAMES_AT_ONCE, _VALUES_AT_ONCE // sound.channels))
    n_read = sound.tell()  # the beginning, or where it was told to stand
    while True:
        try:
            block = sound.read(size, dtype=dtype, always_2d=True)  # sample channel
        except soundfile.LibsndfileError as error:
            raise _cut_short(
                path, f"decoding fails after {n_read / sound.samplerate:.2f} s"
            ) from error
        if len(block) == 0:
            break
        yield _checked(path, downmix(block), n_read)
        n_read += len(block)
    if n_read == 0:
        raise AudioError(f"'{path}' has no samples")
    if n_promised is not None and n_read < n_promised:
        raise _cut_short(path, f"it promises {n_promised} samples, {n_read} are there")


def downmix(block: npt.NDArray[np.floating | np.integer]) -> Samples:
    """Mean of the channels [sample, channel] → [sample], summed in float64; 16 bits become ±1."""
    full = 2**15 if block.dtype == np.int16 else 1
    with np.errstate(over="ignore"):
        if block.shape[1] == 1:
            mono = block[:, 0].astype(np.float32, copy=False)
            return mono if full == 1 else np.multiply(mono, np.float32(1 / full), out=mono)
        total = block[:, 0].astype(np.float64)
        for channel in range(1, block.shape[1]):
            total += block[:, channel]
        return (total / (full * block.shape[1])).astype(np.float32)


def _checked(path: _Place, block: Samples, offset: int) -> Samples:
    # A finite sum has finite terms, and costs little; terms too large to add get a closer look.
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.isfinite(block.sum())
    if not whole and not (finite := np.isfinite(block)).all():
        first = offset + int(np.argmin(finite))
        raise AudioError(
            f"'{path}' holds NaN or infinite samples (the first at sample {first}); "
            "write it again from its source"
        )
    return block


def resampled(blocks: Iterator[Samples], from_hz: int, to_hz: int) -> Iterator[Samples]:
    """Resample as a stream; soxr gives the same bits however the input is cut into blocks."""
    if from_hz == to_hz:
        yield from blocks
        return
    stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality="HQ")
    n_out, first = 0, None
    for block in blocks:
        first = block[:1] if first is None else first
        out = stream.resample_chunk(block, last=False)
        n_out += len(out)
        yield out
    out = stream.resample_chunk(np.zeros(0, dtype=np.float32), last=True)
    # A clip shorter than one output sample still is a clip.
    yield out if n_out + len(out) or first is None else first


def _collect(blocks: Iterator[Samples], n_wanted: int | None) -> Samples:
    parts, n = [], 0
    for block in blocks:
        parts.append(block)
        n += len(block)
        if n_wanted is not None and n >= n_wanted:
            break
    return (parts[0] if len(parts) == 1 else np.concatenate(parts))[:n_wanted]


def _cut_short(path: _Place, how: str) -> AudioError:
    return AudioError(f"'{path}' is cut short: {how}. Copy or download it again.")


def _not_audio(path: _Place, kind: str, error: soundfile.LibsndfileError) -> str:
    if kind == "unknown":
        with path.open("rb") as file:
            begins = file.read(12)
        what = f"'{path}' is not a sound file in a known format: it begins with {begins!r}"
        if codecs.available():
            return what
        return f"{what}. Rarer formats need: pip install 'residual-audio[codecs]'"
    reason = error.error_string.strip().rstrip(".") or "its header is damaged"
    return f"'{path}' cannot be decoded as {kind}: {reason}"
