"""A store as one HDF5, Zarr or NPZ file, for other tools. Arrays are copied shard by shard."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from residual_audio.errors import InputError, MissingExtraError
from residual_audio.files import replacing, replacing_folder
from residual_audio.progress import SILENT, Progress
from residual_audio.store.clips import COLUMNS
from residual_audio.store.reader import Store
from residual_audio.store.shards import is_sampled
from residual_audio.store.tensors import Array


def export_store(
    store: Store, to: str | Path, overwrite: bool = False, progress: Progress = SILENT
) -> Path:
    """Write everything to `x.h5`, `x.zarr` or `x.npz`; the ending decides."""
    path = Path(to).expanduser()
    writers: dict[str, Callable[[Store, Path, Progress], None]] = {
        ".h5": _to_h5,
        ".hdf5": _to_h5,
        ".zarr": _to_zarr,
        ".npz": _to_npz,
    }
    if path.suffix not in writers:
        raise InputError(f"cannot export to '{path.name}': it must end in .h5, .zarr or .npz")
    if path.exists() and not overwrite:
        raise InputError(f"'{path}' exists: choose another name, or allow it with --overwrite")
    path.parent.mkdir(parents=True, exist_ok=True)
    progress.keeps(f"no '{path.name}' was written; the same command starts again")
    writers[path.suffix](store, path, progress)
    return path


def _columns(store: Store) -> Iterator[tuple[str, Array]]:
    """Clip columns as plain arrays: missing text is empty, a missing fold is −1."""
    for name in COLUMNS:
        values = store.clips[name]
        if name == "fold":
            yield name, np.array([-1 if v is None else v for v in values], np.int64)
        elif name == "captions":
            yield name, np.array([json.dumps(v, ensure_ascii=False) for v in values], np.str_)
        else:
            yield name, np.array(["" if v is None else v for v in values], np.str_)


class _Table(NamedTuple):
    """One array to write, piece by piece."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Iterator[Array]


def _tables(store: Store, progress: Progress) -> Iterator[_Table]:
    """Everything numeric; moments are merged, all else is joined."""
    progress.step("copying", len(store.names), "arrays")
    for name in store.names:
        progress.advance()
        if not name.startswith("moments/"):
            n = len(store)
            if is_sampled(name):
                n = sum(len(piece) for piece in store.pieces(name))
            spec = store.manifest["arrays"][name]
            yield _Table(name, (n, *spec["shape"]), np.dtype(spec["dtype"]), store.pieces(name))
    whole: dict[str, Array] = {}
    if "moments" in store.kinds:
        for site in store.attention_sites:
            merged = store.moments(site)
            whole[f"moments/{site}/n"] = np.asarray([merged.n])
            whole[f"moments/{site}/mean"] = merged.mean
            whole[f"moments/{site}/scatter"] = merged.scatter
    for name in store.operator_names:
        whole[f"operators/{name}"] = store.operator(name)
    for name, value in whole.items():
        yield _Table(name, value.shape, value.dtype, iter([value]))


def _manifest_text(store: Store) -> str:
    return json.dumps(store.manifest, ensure_ascii=False)


def _texts_text(store: Store) -> str:
    return json.dumps(store.text_record, ensure_ascii=False)


def _to_h5(store: Store, path: Path, progress: Progress) -> None:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "export", "Exporting to HDF5") from error
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs["manifest"] = _manifest_text(store)
        # attributes are limited to 64 kB, the dictionary may be longer
        file.create_dataset("texts", data=_texts_text(store), dtype=h5py.string_dtype())
        for name, values in _columns(store):
            text = values.dtype.kind == "U"
            data = values.astype(object) if text else values
            kind = h5py.string_dtype() if text else values.dtype
            file.create_dataset(f"clips/{name}", data=data, dtype=kind)
        for table in _tables(store, progress):
            _fill(file.create_dataset(table.name, table.shape, table.dtype), table.pieces)


def _to_zarr(store: Store, path: Path, progress: Progress) -> None:
    try:
        import zarr
    except ImportError as error:
        raise MissingExtraError("zarr", "export", "Exporting to Zarr") from error
    with replacing_folder(path) as temporary:
        group = zarr.open_group(temporary, mode="w")
        group.attrs["manifest"] = store.manifest
        group.attrs["texts"] = store.text_record
        # strings as attributes: Zarr 3 has no settled string type yet
        group.attrs["clips"] = {name: values.tolist() for name, values in _columns(store)}
        for table in _tables(store, progress):
            chunks = tuple(
                max(1, min(n, 256) if axis == 0 else n) for axis, n in enumerate(table.shape)
            )
            target = group.create_array(
                table.name, shape=table.shape, dtype=table.dtype, chunks=chunks
            )
            _fill(target, table.pieces)
        if path.is_dir():
            shutil.rmtree(path)


def _to_npz(store: Store, path: Path, progress: Progress) -> None:
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as file:

        def write(name: str, value: Array) -> None:
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)

        write("manifest", np.array(_manifest_text(store)))
        write("texts", np.array(_texts_text(store)))
        for name, values in _columns(store):
            write(f"clips/{name}", values)
        for table in _tables(store, progress):
            with file.open(f"{table.name}.npy", "w", force_zip64=True) as member:
                header = {"descr": table.dtype.str, "fortran_order": False, "shape": table.shape}
                np.lib.format.write_array_header_2_0(member, header)  # type: ignore[arg-type]
                for piece in table.pieces:
                    member.write(np.ascontiguousarray(piece).tobytes())


def _fill(target: Any, pieces: Iterator[Array]) -> None:
    first = 0
    for piece in pieces:
        target[first : first + len(piece)] = piece
        first += len(piece)
