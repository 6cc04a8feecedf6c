"""A run: a folder with the store of a model on a data set, and all that is made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from residual_audio.data.base import Dataset
from residual_audio.data.registry import dataset_names, load_dataset, needs_root
from residual_audio.data.remembered import RunSource, recall_source, remember_source
from residual_audio.errors import InputError, ModelError
from residual_audio.extraction.extract_settings import ExtractOptions
from residual_audio.extraction.extraction import Extraction
from residual_audio.extraction.extraction import extract as extract_store
from residual_audio.extraction.same_data import check_same_data, heard_again
from residual_audio.models.clap import AudioTextModel
from residual_audio.passes.kept import Passes, load_passes
from residual_audio.passes.loop import Hearing, heard_as
from residual_audio.progress import SILENT, Progress
from residual_audio.store.reader import Store, open_store
from residual_audio.surface.given import DatasetLike, ModelLike, given_dataset, given_model

if TYPE_CHECKING:
    from residual_audio.surface.model import Model

DataOptions = Mapping[str, Any]
"""Options of a data set by name, as its card lists them."""
Folds = str | int | Iterable[str | int] | None
"""One official fold or several, by number or name; None for all."""


class Run:
    """The folder of a run. Only the store is needed; whatever else is asked is made from it.

    >>> import tempfile, residual_audio as ra
    >>> sounds = ra.load_dataset("synthetic", n_clips=40)
    >>> run = ra.extract("nano", sounds, tempfile.mkdtemp())
    >>> len(run), run.store.heads("s3.b1.attention").shape
    (40, (40, 32, 12))
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        root: str | Path | None = None,
        options: DataOptions | None = None,
        dataset: Dataset | None = None,
        model: Model | None = None,
        extraction: Extraction | None = None,
    ) -> None:
        """`root` is where the data set lies and `options` what it was opened with, for what has to
        hear the clips again (both are remembered on the machine that made the run); `dataset` and
        `model` where they are at hand."""
        self.folder = Path(folder)
        self.root = root
        self.options = dict(options or {})
        self.extraction = extraction
        self._dataset = dataset
        self._model = model

    @cached_property
    def store(self) -> Store:
        return open_store(self.folder)

    @property
    def skipped(self) -> dict[str, str]:
        """Clips that could not be heard, and why."""
        return self.store.skipped

    @cached_property
    def dataset(self) -> Dataset:
        """The data set that the store was made from."""
        if self._dataset is not None:
            return self._dataset
        known = recall_source(self.folder, self.store.dataset_info.name)
        root = self.root or known.root
        if root is None and needs_root(known.dataset):
            raise InputError(
                f"the clips of {known.dataset} have to be heard again: say where they lie, "
                f"ra.Run('{self.folder}', root=…) or --root"
            )
        found = load_dataset(known.dataset, root, **{**known.options, **self.options})
        # sounds made on demand have the same names whatever their seed
        recipe = (self.store.provenance.get("dataset") or {}).get("recipe") or found.recipe
        if found.recipe != recipe:
            raise InputError(
                f"the store was made from '{recipe}', this is '{found.recipe}': give the same "
                "--data-option (options=) as then"
            )
        return found

    @property
    def lacks_folder(self) -> bool:
        """Whether nobody has said where its data set lies, though it lies in a folder."""
        if self._dataset is not None or self.root is not None:
            return False
        known = recall_source(self.folder, self.store.dataset_info.name)
        return known.root is None and needs_root(known.dataset)

    def rows(self, folds: Folds = None, limit: int | None = None) -> np.ndarray | None:
        """Numbers of the clips of some folds; None for all."""
        from residual_audio.judge.of_store import rows_of

        return rows_of(self.store, fold_names(folds), limit)

    def passes(
        self,
        model: ModelLike | None = None,
        rows: np.ndarray | None = None,
        progress: Progress = SILENT,
        device: str = "auto",
    ) -> Passes:
        """The clips of the store, ready to be run through its model again."""
        store = self.store
        loaded = given_model(model or self._model or store.model_info.name, device)
        if loaded.sha256 != store.model_info.sha256:
            raise ModelError(
                f"'{loaded.name}' is not the model that '{self.folder.name}' was made with "
                f"({store.model_info.name}): give that one"
            )
        ids = [str(store.clips["id"][i]) for i in (range(len(store)) if rows is None else rows)]
        data = heard_again(store, self.dataset, loaded)
        check_same_data(store, data)
        hearing = Hearing(heard_as(store.run_info.long), batch_size=16)
        return load_passes(loaded, data, ids, hearing, progress=progress)

    def __len__(self) -> int:
        return len(self.store)

    def __repr__(self) -> str:
        store = self.store
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        partial = store.partial
        some = "" if partial is None else f" (of {partial.of:,})"
        return (
            f"Run {self.folder.name}: {len(store):,} clips of {store.dataset_info.name}{some} "
            f"through {store.model_info.name}{skipped}; {', '.join(store.kinds)}"
        )


RunLike = Run | str | Path
"""A run, or its folder."""


def given_run(run: RunLike) -> Run:
    return run if isinstance(run, Run) else Run(run)


def passes_of_part(
    run: str, model: ModelLike | None = None, device: str = "auto", progress: Progress = SILENT
) -> Passes:
    """The clips of `RUN`, or of folds of it (`RUN#1,2`), ready to be run through its model."""
    path, _, folds = run.partition("#")
    given = given_run(path)
    rows = given.rows(folds.split(",") if folds else None)
    return given.passes(model, rows, progress, device)


def fold_names(folds: Folds) -> tuple[str, ...]:
    """As text, however they were given."""
    if folds is None:
        return ()
    return (str(folds),) if isinstance(folds, str | int) else tuple(str(f) for f in folds)


def extract(
    model: ModelLike,
    dataset: DatasetLike,
    out: str | Path,
    *,
    labels: Sequence[str | None] | None = None,
    source: RunSource | None = None,
    progress: Progress = SILENT,
    **options: Unpack[ExtractOptions],
) -> Run:
    """Run a model over a data set and keep in `out` what its heads did.

    `dataset` is a name (with `root=`), a data set, or a list of files (with `labels=`, one a file,
    where there are any). Keeps the heads and, where the encoder has one, the direct path, unless
    `capture=` says otherwise. What is there already is kept: a stopped run goes on. `source` is
    what the data set was opened with, remembered so that nobody is asked for it again.

    >>> import tempfile, residual_audio as ra
    >>> sounds = ra.load_dataset("synthetic", n_clips=20)
    >>> ra.extract("nano", sounds, tempfile.mkdtemp() + "/mine")
    Run mine: 20 clips of synthetic through nano; embedding, heads, direct
    """
    elsewhere = options.get("processes", 1) > 1 or options.get("engine", "local") != "local"
    # other processes load the model themselves, by its name
    by_name = isinstance(model, str) and elsewhere
    known = by_name and "capture" in options
    loaded = None if known else given_model(model, options.get("device", "auto"))
    if loaded is not None and not loaded.sha256:
        raise InputError(
            f"'{loaded.name}' is edited by a function, which nobody can tell from another: a store "
            "of it could not be continued. Edit with ra.zero(), ra.scale(…), ra.mean(…), …"
        )
    data = given_dataset(dataset, options.get("root"), labels)
    if loaded is not None:
        kinds = ("heads", "direct") if has_direct_path(loaded) else ("heads",)
        options.setdefault("capture", kinds)
    given = model if by_name or loaded is None else loaded
    made = extract_store(given, data, out, progress=progress, **options)
    if source is None and data.root is not None and data.name in dataset_names():
        source = RunSource(data.name, data.root)
    if source is not None:
        remember_source(Path(out), source)
    return Run(out, dataset=data, model=loaded, extraction=made)


def has_direct_path(model: AudioTextModel) -> bool:
    """Whether the latent is a sum of what units add to it."""
    try:
        model.encoder.direct_path()
    except ModelError:
        return False
    return True
