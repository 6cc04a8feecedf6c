"""Reading a store: arrays by name, one row a clip, read only when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.errors import InputError, StoreError
from residual_audio.files import parse_json
from residual_audio.metrics.moments import Moments, merge_all
from residual_audio.store import clips as clip_index
from residual_audio.store.about import (
    ArraySpec,
    DatasetInfo,
    JointInfo,
    ModelInfo,
    Partial,
    RunInfo,
    StoreSize,
)
from residual_audio.store.clips import ClipTable, read_clips, read_skipped
from residual_audio.store.identity import check_listing, listed_shard, read_listed
from residual_audio.store.manifest import NAME, read_manifest
from residual_audio.store.packing import unpack
from residual_audio.store.shards import is_sampled, shift_rows
from residual_audio.store.tensors import Array, TensorFile
from residual_audio.types import Head, HeardBefore, Site

OPERATORS = "operators.safetensors"
TEXTS = "texts.json"
_HEADERS_MAX = 1024
"""Headers of shards that are kept, of some 100 kB each."""


def store_folder(path: str | Path) -> Path:
    """The folder with the manifest: the path itself, or `store` below a run folder."""
    path = Path(path).expanduser()
    return path if (path / NAME).is_file() else path / "store"


def open_store(path: str | Path) -> Store:
    """Open a finished store, given its folder or that of its run.

    >>> import tempfile, residual_audio as ra
    >>> run = ra.extract("nano", ra.load_dataset("synthetic", n_clips=4), tempfile.mkdtemp())
    >>> ra.open_store(run.folder).heads("s3.b1.attention").shape
    (4, 32, 12)
    """
    folder = store_folder(path)
    if not (folder / NAME).is_file():
        raise StoreError(
            f"no store in '{path}': neither {NAME} nor store/{NAME} is there. "
            "Make one with: residual-audio extract --out <folder>"
        )
    manifest = read_manifest(folder)
    if manifest["status"] != "complete":
        raise StoreError(
            f"the store in '{folder}' is not finished: run the same `extract` again, it continues "
            "where it stopped"
        )
    check_listing(folder, manifest, (OPERATORS, TEXTS, clip_index.NAME))
    return Store(folder, manifest)


class Store:
    """What every head of an encoder did on every clip, and all it takes to go on from there."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.sites = tuple(Site(*site) for site in manifest["sites"])
        self._by_name = {str(site): site for site in self.sites}
        self._n_ok = {i: shard["n_ok"] for i, shard in enumerate(manifest["shards"])}
        self._opened: dict[int, TensorFile] = {}
        self._listed = {str(entry["name"]): entry for entry in manifest["files"]}

    # --- clips

    @cached_property
    def all_clips(self) -> ClipTable:
        """Every clip of the run, skipped ones too."""
        data = read_listed(self.folder, self._listed[clip_index.NAME])
        return read_clips(self.folder / clip_index.NAME, data)

    @cached_property
    def clips(self) -> ClipTable:
        """The clips that have rows, in the order of the rows."""
        return self.all_clips.where(self.all_clips["status"] == "ok")

    @property
    def has_windows(self) -> bool:
        """Whether rows are windows of longer clips; `store.by_clip` has their means."""
        return self.run_info.long == "tile"

    @property
    def skipped(self) -> dict[str, str]:
        """Clip id → why it has no row."""
        data = read_listed(self.folder, self._listed[clip_index.NAME])
        return read_skipped(self.folder / clip_index.NAME, data)

    def __len__(self) -> int:
        return sum(self._n_ok.values())

    def __repr__(self) -> str:
        kinds, size = ", ".join(self.kinds), self.size.n_bytes / 1e6
        return (
            f"Store {self.folder}: {len(self):,} clips of {self.dataset_info.name} through "
            f"{self.model_info.name}; {kinds}; {size:.1f} MB"
        )

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.text_record["classes"])

    @property
    def template(self) -> str:
        return str(self.text_record["template"])

    @property
    def kinds(self) -> tuple[str, ...]:
        """What was captured."""
        return tuple(self.manifest["asked"]["capture"]["kinds"])

    # --- what made it

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(**self.manifest["model"])

    @property
    def dataset_info(self) -> DatasetInfo:
        return DatasetInfo(**self.manifest["asked"]["dataset"])

    @property
    def run_info(self) -> RunInfo:
        return RunInfo(**self.manifest["asked"]["run"])

    @property
    def asked(self) -> dict[str, Any]:
        """All that decided what was written, as the manifest records it."""
        return dict(self.manifest["asked"])

    @property
    def provenance(self) -> dict[str, Any]:
        """When, by which version and with what it was made."""
        return dict(self.manifest["provenance"])

    @property
    def size(self) -> StoreSize:
        """What lies on disk."""
        shards, files = self.manifest["shards"], self.manifest["files"]
        in_shards = sum(entry["bytes"] for entry in shards)
        whole = in_shards + sum(entry["bytes"] for entry in files)
        return StoreSize(int(self.manifest["n_clips"]), len(shards), in_shards, whole)

    @property
    def array_specs(self) -> dict[str, ArraySpec]:
        """Type and shape of a row of each array."""
        return dict(self.manifest["arrays"])

    @property
    def partial(self) -> Partial | None:
        """Set where only some clips of the data set were asked for."""
        found = self.manifest["partial"]
        return None if found is None else Partial(**found)

    @property
    def heard_before(self) -> HeardBefore | None:
        """How many of the clips the model was trained on, as far as it is known."""
        found: HeardBefore | None = self.manifest.get("heard_before")
        return found

    @property
    def remarks(self) -> dict[str, str]:
        """Clip id → what is odd about its sound (silent, very short), though it has a row."""
        return dict(self.manifest.get("remarks", {}))

    # --- arrays

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.manifest["arrays"])

    def has(self, name: str) -> bool:
        return name in self.manifest["arrays"]

    def pieces(self, name: str) -> Iterator[Array]:
        """An array shard by shard, each proved as it is read; `…_at` rows count over the store."""
        if not self.has(name):
            kind = name.split("/")[0]
            hint = "" if kind in self.kinds else f": extract again with --capture …,{kind}"
            raise StoreError(f"the store in '{self.folder}' has no '{name}'{hint}")
        first = 0
        for index, n_ok in self._n_ok.items():
            if not n_ok:
                continue
            piece = self._shard(index)[name]
            if "packed_bits" in self.manifest["arrays"][name]:
                piece = unpack(piece)
            yield shift_rows(piece, first) if name.endswith("_at") else piece
            first += n_ok

    def _shard(self, index: int) -> TensorFile:
        """A shard with its header proved, which is kept: it is asked for once an array."""
        found = self._opened.get(index)
        if found is None:
            found = listed_shard(self.folder, self.manifest, index)
            if len(self._opened) < _HEADERS_MAX:
                self._opened[index] = found
        return found

    def array(self, name: str, rows: Array | slice | None = None) -> Array:
        """An array by name, one row a clip (or only these rows)."""
        if name.startswith("moments/"):
            raise InputError("moments are merged, not joined: use store.moments(site)")
        if is_sampled(name):
            whole = np.concatenate([np.array(piece) for piece in self.pieces(name)])
        elif sum(map(bool, self._n_ok.values())) == 1:
            parts = list(self.pieces(name))
            whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        else:  # piece by piece: no second copy
            spec = self.manifest["arrays"][name]
            whole = np.empty((len(self), *spec["shape"]), spec["dtype"])
            first = 0
            for piece in self.pieces(name):
                whole[first : first + len(piece)] = piece
                first += len(piece)
        return whole if rows is None else whole[rows]

    def latent(self) -> Array:
        """Pooled output of the encoder [clip, latent]."""
        return self.array("embedding/latent")

    def embedding(self, unit: bool = True) -> Array:
        """Joint embedding [clip, d]; `unit=False` leaves the length the joint head gave."""
        joint = self.array("embedding/joint")
        if not unit:
            return joint
        return joint / np.maximum(np.linalg.norm(joint, axis=1, keepdims=True), 1e-12)

    def site(self, site: Site | str) -> Site:
        try:
            return self._by_name[str(site)]
        except KeyError:
            raise InputError(f"no site '{site}'; sites are like {self.sites[0]}") from None

    @property
    def attention_sites(self) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if site.kind == "attention")

    @property
    def all_heads(self) -> tuple[Head, ...]:
        return tuple(head for site in self.sites for head in site.heads)

    def site_of(self, head: Head | str) -> tuple[Site, Head]:
        """A head, or its name, and where it is."""
        found = Head.parse(head) if isinstance(head, str) else head
        site = self.site(f"s{found.stage}.b{found.block}.attention")
        if not 0 <= found.head < site.n_heads:
            raise InputError(f"no head '{found}': {site} has {site.n_heads} heads")
        return site, found

    def heads(self, site: Site | str) -> Array:
        """Raw head outputs, mean over tokens: [clip, head, d_head]."""
        return self.array(f"heads/{self.site(site)}")

    def projected(self, head: Head | str, bias: bool = False) -> Array:
        """A head's output through its rows of W_O: [clip, width]; `bias` adds its share of b."""
        site, found = self.site_of(head)
        out = self.heads(site)[:, found.head] @ self.w_out(site)[found.head]
        return out + self.b_out(site) / site.n_heads if bias else out

    @property
    def n_all(self) -> int:
        """Clips that moments and spectra are of; a sample of a large store has fewer rows."""
        return len(self)

    def clip_moments(self, site: Site | str) -> Moments | None:
        """Mean and scatter of each head over all clips; None where their rows are at hand."""
        return None

    def moments(self, site: Site | str) -> Moments:
        """Count, mean and scatter of each head over all tokens of all clips."""
        name = f"moments/{self.site(site)}"
        parts = zip(
            *(self.pieces(f"{name}/{part}") for part in ("n", "mean", "scatter")), strict=True
        )
        return merge_all(Moments(int(n[0]), mean, scatter) for n, mean, scatter in parts)

    # --- fixed matrices

    @cached_property
    def _operators(self) -> TensorFile:
        data = read_listed(self.folder, self._listed[OPERATORS])
        return TensorFile(self.folder / OPERATORS, data)

    def operator(self, name: str) -> Array:
        """A fixed matrix by name (`w_out/<site>`, `joint/…`, `grid/window/s0` …)."""
        return self._operators[name]

    @property
    def operator_names(self) -> list[str]:
        return self._operators.names

    def w_out(self, site: Site | str) -> Array:
        """[head, d_head, width]"""
        return self.operator(f"w_out/{self.site(site)}")

    def b_out(self, site: Site | str) -> Array:
        """[width]"""
        return self.operator(f"b_out/{self.site(site)}")

    @property
    def joint(self) -> JointInfo | None:
        """Kind and configuration of the joint head; None where it does not read the latent."""
        return self.manifest["joint"]

    # --- texts

    @cached_property
    def text_record(self) -> dict[str, Any]:
        """Prompt, classes, dictionary and where its entries are from."""
        try:
            return dict(parse_json(read_listed(self.folder, self._listed[TEXTS])))
        except ValueError as error:
            raise StoreError(f"'{TEXTS}' of '{self.folder}' is not JSON") from error

    @property
    def has_text(self) -> bool:
        return "text/dictionary" in self._operators

    @property
    def text_sources(self) -> list[str]:
        """Of each dictionary entry: class, caption or built-in."""
        return list(self.text_record["sources"])

    def texts(self) -> tuple[list[str], Array | None]:
        """The dictionary and its unit embeddings [entry, d]; None for a model without text."""
        rows = self.operator("text/dictionary") if self.has_text else None
        return list(self.text_record["dictionary"]), rows

    def class_embeddings(self) -> Array | None:
        """Unit embeddings of the class prompts [class, d], in the order of `classes`."""
        return self.operator("text/classes") if self.has_text else None

    @property
    def logit_scale(self) -> float:
        return float(self.manifest["logit_scale"])
