"""Data sets as the Hugging Face Hub stores them: parquet with {bytes, path} audio.

residual-audio extract -d hf:ashraq/esc50 --out run
residual-audio extract -d hf:/data/my-set --data-option label=category …
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residual_audio.data.base import TEMPLATE, Card, Dataset
from residual_audio.data.packed_clips import ClipRows, PackedClips
from residual_audio.data.told import Columns, fold_of, label_of, one_text, texts_of
from residual_audio.errors import AudioError, DatasetError, InputError, UnreachableError
from residual_audio.files import parse_json
from residual_audio.types import Clip

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

CARD = Card(
    name="hf",
    title="A data set of the Hugging Face Hub (parquet)",
    task="labels or captions",
    licence="that of the recordings",
    citation="Q. Lhoest et al. Datasets: A Community Library for NLP. EMNLP 2021.",
    url="https://huggingface.co/docs/hub/datasets-audio",
    layout="**/*.parquet with a column of {bytes, path}, and columns of labels or captions",
    download="Give a folder or a repository in the name: hf:/data/my-set or hf:ashraq/esc50.",
    group="what the column named by `group` says; without it each clip by itself",
    options={
        "source": "the folder, file or repository; also after the colon of the name",
        "split": "only files whose name begins so (train, test …)",
        "audio": "column with the sound (default: the one that holds {bytes, path})",
        "label": "column with the label; class numbers become their names",
        "caption": "column with the caption or captions",
        "fold": "column with the fold, a whole number",
        "group": "column with the source that splits must keep together",
        "template": "prompt with {} for the label",
    },
)
KNOWN: dict[str, Columns] = {
    "ashraq/esc50": Columns(label="category", fold="fold", group="src_file"),
    "danavery/urbansound8K": Columns(label="class", fold="fold", group="fsID"),
    "OpenSound/AudioCaps": Columns(caption="caption", group="youtube_id"),
}
"""Columns of well-known sets."""
_GROUPS_KEPT = 2
"""Row groups in memory: clips are read in order, by threads that may be one group apart."""


class ParquetSounds:
    """Reads clips in order, a row group at a time."""

    def __init__(self, column: str) -> None:
        self.column = column
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Path, int], Any] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetSounds, (self.column,)

    def __call__(self, clip: Clip) -> bytes:
        assert clip.path is not None
        assert clip.inside is not None
        group, row = clip.inside
        data = self._group(clip.path, group)[row].as_py()
        if data is None:
            raise AudioError(f"'{clip.id}' has no bytes in '{clip.path.name}', only a name")
        return bytes(data)

    def _group(self, path: Path, group: int) -> pa.ChunkedArray:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._lock:
            key = (path, group)
            if key not in self._kept:
                try:
                    with pq.ParquetFile(path, page_checksum_verification=True) as file:
                        table = file.read_row_group(
                            group, columns=[f"{self.column}.bytes"], use_threads=False
                        )
                except (OSError, pa.ArrowException) as error:
                    raise UnreachableError(f"'{path}' cannot be read: {error}") from error
                column = table.column(self.column).combine_chunks()
                self._kept[key] = column.field("bytes")
                while len(self._kept) > _GROUPS_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]


@dataclass(frozen=True)
class HubOptions:
    """What is said about a data set; see `CARD.options`."""

    source: str | None = None
    split: str | None = None
    audio: str | None = None
    label: str | None = None
    caption: str | None = None
    fold: str | None = None
    group: str | None = None
    template: str | None = None


OPTIONS = HubOptions
"""What people may say, by name."""


def load(root: Path | None = None, options: HubOptions | None = None) -> Dataset:
    told = options or HubOptions()
    given = told.source or (str(root) if root else "")
    if not given:
        raise InputError(f"hf needs to know which data set. {CARD.download}")
    files = _files(given, told.split)
    columns = Columns(told.label, told.caption, told.fold, told.group)
    if columns == Columns():
        columns = KNOWN.get(given, columns)
    rows = ClipRows()
    column = None
    for number, path in enumerate(files):
        column = _add_file(rows, number, path, told.audio or column, columns)
    clips = rows.clips(files)
    if not len(clips) or column is None:
        raise DatasetError(f"there is no row in the {len(files)} parquet files of '{given}'")
    return _dataset(clips, rows.digest(), column, told.template)


def _dataset(clips: PackedClips, digest: str, column: str, template: str | None) -> Dataset:
    return Dataset(
        name="hf",
        root=None,
        clips=clips,
        card=CARD,
        classes=clips.labels(),
        template=template or TEMPLATE,
        folds={number: str(number) for number in clips.folds()},
        recipe=f"parquet {digest}",
        fetch=ParquetSounds(column),
    )


def _files(given: str, split: str | None) -> list[Path]:
    place = Path(given).expanduser()
    folder = place if place.exists() else _from_hub(given)
    found = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
    if split is not None:
        found = [path for path in found if path.name.startswith(split)]
    if not found:
        of = f" of the split '{split}'" if split else ""
        raise DatasetError(f"no parquet files{of} in '{given}'. {CARD.download}")
    return found


def _from_hub(name: str) -> Path:
    """From the cache of huggingface-hub, else from the Hub itself."""
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise DatasetError(f"there is no folder '{name}', and it is no name of a repository")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    def get(offline: bool) -> Path:
        found = snapshot_download(  # nosec B615 # data, hashed into the fingerprint
            name,
            repo_type="dataset",
            allow_patterns="*.parquet",
            etag_timeout=10,
            local_files_only=offline,
        )
        return Path(found)

    try:
        return get(offline=True)
    except LocalEntryNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise DatasetError(f"'{name}' is no data set of the Hub: {error}") from error
    if constants.HF_HUB_OFFLINE:
        raise DatasetError(
            f"'{name}' is not in the cache, and HF_HUB_OFFLINE is set. Download it where there is "
            f"a network: hf download --repo-type dataset {name}"
        )
    try:
        return get(offline=False)
    except Exception as error:  # of whatever client the hub uses
        raise DatasetError(
            f"'{name}' is not in the cache, and the Hub did not give it: "
            f"{type(error).__name__}. Give a folder of its parquet files instead"
        ) from error


def _add_file(rows: ClipRows, number: int, path: Path, audio: str | None, columns: Columns) -> str:
    """Rows of a file, without the sound; gives the name of its audio column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            column = audio or _audio_column(path, file.schema_arrow)
            if column not in file.schema_arrow.names:
                raise DatasetError(
                    f"'{path}' has no column '{column}'; it has: "
                    f"{', '.join(file.schema_arrow.names)}"
                )
            columns.check(file.schema_arrow.names, f"'{path}'")
            _check_bytes(path, column, file.schema_arrow.field(column).type)
            _add_rows(rows, number, path, file, column, columns)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"'{path}' is not a whole parquet file: {error}") from error
    return column


def _add_rows(
    rows: ClipRows, number: int, path: Path, file: pq.ParquetFile, audio: str, columns: Columns
) -> None:
    names = _class_names(file.schema_arrow, columns.label)
    wanted = [name for name in vars(columns).values() if name is not None]
    for group in range(file.num_row_groups):
        # names of files are small; the bytes beside them are not touched
        table = file.read_row_group(group, columns=[f"{audio}.path", *wanted], use_threads=False)
        for row, told in enumerate(table.to_pylist()):
            where = f"'{path}', row {rows.n}"
            label = told[columns.label] if columns.label else None
            if names is not None and isinstance(label, int) and 0 <= label < len(names):
                label = names[label]
            name = f"{path.stem}/{group}-{row}"
            shown = one_text((told[audio] or {}).get("path"))
            clip = Clip(
                id=f"{name}/{Path(shown).name}" if shown else name,
                label=label_of(label),
                captions=texts_of(told[columns.caption]) if columns.caption else (),
                fold=fold_of(told[columns.fold], where) if columns.fold else None,
                group=(one_text(told[columns.group]) if columns.group else None) or name,
            )
            rows.add(number, (group, row), clip)


def _audio_column(path: Path, schema: pa.Schema) -> str:
    import pyarrow as pa

    found = [
        field.name
        for field in schema
        if pa.types.is_struct(field.type)
        and {"bytes", "path"} <= {field.type.field(i).name for i in range(field.type.num_fields)}
    ]
    if len(found) != 1:
        raise DatasetError(
            f"'{path}' has {len(found)} columns of {{bytes, path}}, as the Hub stores sound; say "
            f"which with audio=; columns: {', '.join(schema.names)}"
        )
    return found[0]


def _check_bytes(path: Path, column: str, kind: pa.DataType) -> None:
    """The sound itself must be there, as bytes."""
    import pyarrow as pa

    fields = {f.name: f.type for f in kind} if pa.types.is_struct(kind) else {}
    held = fields.get("bytes")
    if held is None or not any(
        is_(held) for is_ in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_null)
    ):
        raise DatasetError(f"'{path}': the column '{column}' does not hold the bytes of sounds")
    if "path" not in fields:
        raise DatasetError(f"'{path}': the column '{column}' has bytes, but no field 'path'")


def _class_names(schema: pa.Schema, label: str | None) -> list[str] | None:
    """Of class numbers, as `datasets` writes them into the file."""
    try:
        told = parse_json((schema.metadata or {})[b"huggingface"])
        names = told["info"]["features"][label]["names"]
        return [str(name) for name in names]
    except (KeyError, TypeError, ValueError):
        return None
