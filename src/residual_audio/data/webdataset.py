"""WebDataset tar shards: sounds with .json or .txt beside them, read where they lie.

residual-audio extract -d "wds:/data/audio-{000..099}.tar" --data-option label=category …
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path

from residual_audio.data.base import TEMPLATE, Card, Dataset
from residual_audio.data.packed_clips import ClipRows
from residual_audio.data.tar_index import TarSample, tar_samples
from residual_audio.data.told import Columns, fold_of, label_of, one_text, texts_of
from residual_audio.errors import AudioError, DatasetError, InputError, UnreachableError
from residual_audio.types import Clip

CARD = Card(
    name="wds",
    title="WebDataset: tar shards of sounds with their texts",
    task="labels or captions",
    licence="that of the recordings",
    citation="A. Aizman, G. Maltby, T. Breuel. High Performance I/O For Large Scale Deep Learning. "
    "IEEE Big Data 2019.",
    url="https://github.com/webdataset/webdataset",
    layout="<name>-000.tar … with <key>.flac (wav, mp3, ogg …) and <key>.json or <key>.txt",
    download="Give the shards in the name: wds:/data/audio-{000..099}.tar, or with *.",
    group="what the JSON field named by `group` says; without it each clip by itself",
    options={
        "source": "the shards: a path with {000..099}, * or ?; also after the colon of the name",
        "label": "JSON field with the label",
        "caption": "JSON field with the caption or captions (default: text, caption or captions; "
        "else the .txt)",
        "fold": "JSON field with the fold, a whole number",
        "group": "JSON field with the source that splits must keep together",
        "template": "prompt with {} for the label",
    },
)
_CAPTIONS = ("text", "caption", "captions")


class TarSounds:
    """Reads a member by its place."""

    def __call__(self, clip: Clip) -> bytes:
        assert clip.path is not None
        assert clip.inside is not None
        first, size = clip.inside
        try:
            with clip.path.open("rb") as file:
                file.seek(first)
                data = file.read(size)
        except OSError as error:
            raise UnreachableError(f"'{clip.path}' cannot be read: {error}") from error
        if len(data) != size:
            raise AudioError(f"'{clip.id}' is cut short: its archive ends before it does")
        return data


def load(
    root: Path | None = None,
    source: str | None = None,
    label: str | None = None,
    caption: str | None = None,
    fold: str | None = None,
    group: str | None = None,
    template: str | None = None,
) -> Dataset:
    given = source or (str(root) if root else "")
    if not given:
        raise InputError(f"wds needs to know which shards. {CARD.download}")
    files = shard_files(given)
    columns = Columns(label, caption, fold, group)
    rows = ClipRows()
    silent = 0
    for number, path in enumerate(files):
        for sample in tar_samples(path):
            if sample.sound is None:
                silent += 1
                continue
            rows.add(number, sample.sound, _clip(path, sample, columns))
    clips = rows.clips(files)
    if not len(clips):
        raise DatasetError(f"there is no sound in '{given}' ({len(files)} tar files)")
    twice = clips.repeated()
    if twice is not None:
        raise DatasetError(f"'{twice}' stands twice in '{given}': members of one name lie together")
    return Dataset(
        name="wds",
        root=None,
        clips=clips,
        card=CARD,
        classes=clips.labels(),
        template=template or TEMPLATE,
        folds={number: str(number) for number in clips.folds()},
        ignored={given: f"{silent:,} names without a sound"} if silent else {},
        recipe=f"tar {rows.digest()}",
        fetch=TarSounds(),
    )


def shard_files(pattern: str) -> list[Path]:
    """Paths of a pattern with {first..last} (zero-padded), * or ?, in order."""
    files: list[Path] = []
    for one in _ranges(str(Path(pattern).expanduser())):
        here = sorted(glob.glob(one)) if glob.has_magic(one) else [one]
        if not here:
            raise DatasetError(f"no file is called '{one}'. {CARD.download}")
        files += [_tar_file(Path(name)) for name in here]
    stems = [path.stem for path in files]
    if len(set(stems)) < len(stems):
        raise DatasetError(
            f"two tar files of '{pattern}' have the same name: ids would stand twice"
        )
    return files


def _tar_file(path: Path) -> Path:
    if not path.is_file():
        raise DatasetError(f"there is no tar file '{path}'. {CARD.download}")
    if path.suffix.lower() != ".tar":
        raise DatasetError(
            f"'{path}' is not called .tar: a compressed archive cannot be read at any place; "
            "unpack it to a plain tar file (gunzip) first"
        )
    return path


def _ranges(pattern: str) -> Iterator[str]:
    """One after the other: the first that is not there ends it, however many were asked for."""
    found = re.search(r"\{(\d{1,9})\.\.(\d{1,9})\}", pattern)
    if found is None:
        yield pattern
        return
    first, last = int(found[1]), int(found[2])
    if last < first or last - first > 1_000_000:
        raise InputError(f"'{found[0]}' is no range of shards: write {{000..099}}")
    width = len(found[1])
    before, after = pattern[: found.start()], pattern[found.end() :]
    for number in range(first, last + 1):
        for rest in _ranges(after):
            yield f"{before}{number:0{width}d}{rest}"


def _clip(path: Path, sample: TarSample, columns: Columns) -> Clip:
    note, where = sample.json, f"'{sample.key}' in '{path}'"
    columns.check(note, where)
    if columns.caption is not None:
        said = texts_of(note[columns.caption])
    else:
        said = next((texts for name in _CAPTIONS if (texts := texts_of(note.get(name)))), ())
        said = said or texts_of(sample.text)
    name = f"{path.stem}/{sample.key}"
    return Clip(
        id=name,
        label=label_of(note[columns.label]) if columns.label else None,
        captions=said,
        fold=fold_of(note[columns.fold], where) if columns.fold else None,
        group=(one_text(note[columns.group]) if columns.group else None) or name,
    )
