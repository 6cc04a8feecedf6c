"""Every kind of file that we write and read back: how it is made, and how all of it is read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.benchmarks.faults import works
from residual_audio.benchmarks.faults.grounds import Make
from residual_audio.errors import StoreError
from residual_audio.files import read_json_object
from residual_audio.models import native
from residual_audio.seals import prove_document
from residual_audio.store.reader import open_store
from residual_audio.types import Gains, Result, Score, Spectrum


@dataclass(frozen=True)
class FileKind:
    """Files of one kind below a folder."""

    name: str
    makes: tuple[Make, ...]
    read: Callable[[Path], Any]
    """All that is in them, to be compared; or an error that names the file."""
    files: tuple[str, ...] = ("**/*",)
    """Patterns of the files that are read back."""


def _read_store(out: Path) -> Any:
    store = open_store(out)
    arrays = [_bytes(piece) for name in store.names for piece in store.pieces(name)]
    operators = [_bytes(store.operator(name)) for name in store.operator_names]
    table = store.all_clips
    clips = {key: [repr(value) for value in table[key]] for key in table.columns}
    return arrays, operators, clips, store.text_record


def _gains(out: Path) -> None:
    from residual_audio.reweight.gain_files import save_gains

    draw = np.random.default_rng(0)
    spectra = {
        f"s0.b0.h{i}": Spectrum(draw.normal(size=4), np.eye(4), np.ones(4), 9) for i in (0, 1)
    }
    values = {unit: draw.normal(1, 0.1, 4).astype(np.float32) for unit in spectra}
    save_gains(Gains(values, spectra), out / "small")


def _read_gains(out: Path) -> Any:
    from residual_audio.reweight.gain_files import load_gains

    found = load_gains(out / "small")
    spectra = [(_bytes(s.mean), _bytes(s.basis), _bytes(s.eigenvalues), s.n) for s in
               found.spectra.values()]  # fmt: skip
    return [(unit, _bytes(value)) for unit, value in found.gains.items()], spectra


def _model(out: Path) -> None:
    native.save(works.small_model(), out / works.MODEL)


def _read_model(out: Path) -> Any:
    model = native.load(out / works.MODEL)
    return [(name, _bytes(value.numpy())) for name, value in model.state_dict().items()]


def _result(out: Path) -> None:
    from residual_audio.results import write_result

    scores = (Score("top1", 0.5, 0.4, 0.6, 100, 0.02),)
    write_result(Result("zero-shot", "small", "synthetic", "all", scores), out)


def _read_result(out: Path) -> Any:
    from residual_audio.results import read_result

    return [repr(read_result(path)) for path in sorted(out.glob("*.json"))]


def _read_tables(out: Path) -> Any:
    """Every table, spectra among them, with what the analysis says about them."""
    from residual_audio.report.run_tables import Tables
    from residual_audio.seals import prove_file

    tables = Tables(out)
    names = [p.stem for p in sorted(tables.folder.iterdir()) if p.suffix in (".csv", ".parquet")]
    notes = read_json_object(prove_file(tables.folder / "interventions.json"))
    return [repr(list(tables[name].rows())) for name in names], tables.statistics, notes


def _read_run(out: Path) -> Any:
    """Its record, its steps (a damaged record of steps has them done again) and its previews."""
    from residual_audio.pipeline.steps import Steps
    from residual_audio.report.page import gather

    record = read_json_object(out / "run.json")
    prove_document(record, out / "run.json")
    page = gather(out)
    lines = Steps(out).lines
    return record, page.scores, page.previews, lines if lines else "done again"


def _read_media(out: Path) -> Any:
    from residual_audio.atlas.media import read_media

    ids = [str(name) for name in open_store(out).clips["id"]]
    found = read_media(out, ids)
    pictures = {name: _bytes(value) for name, value in found.pictures.items()}
    return [found.sound(row) for row in found.sounds], found.seconds, found.asked, pictures


def _training(out: Path) -> None:
    """Stopped half-way: its checkpoint is what the next start goes on from."""
    works.train_small(out, stop_after=4)


def _read_training(out: Path) -> Any:
    """What the next start reads, by starting."""
    from residual_audio.models.text_small import load_bpe
    from residual_audio.seals import prove_file
    from residual_audio.training.training_state import FILE, identity_of, load_tensors

    found: list[Any] = []
    folder = out / "training"
    for path in (*folder.glob("audio/*.safetensors"), *folder.glob("cache/*.safetensors")):
        if path.name == FILE:
            found.append(identity_of(path.parent))
        found.append([(k, _bytes(v.numpy())) for k, v in load_tensors(path).items()])
    tokenizer = load_bpe(prove_file(folder / "text" / "tokenizer.json", StoreError))
    return [*found, tokenizer.to_str()]


def _read_cache(out: Path) -> Any:
    """What is damaged is not used: the same embeddings are computed again."""
    return _bytes(works.cached(out).vectors)


def _contents(out: Path) -> None:
    from residual_audio.data.contents import content_digests

    os.environ["RESIDUAL_AUDIO_CACHE"] = str(out / "cache")
    for i in range(4):
        path = out / "sounds" / f"{i}.wav"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([i]) * 100)
        os.utime(path, (1e9, 1e9))
    time.sleep(2.5)  # what was changed a moment ago is read again, and not kept
    content_digests(sorted((out / "sounds").iterdir()))


def _read_contents(out: Path) -> Any:
    from residual_audio.data.contents import content_digests

    os.environ["RESIDUAL_AUDIO_CACHE"] = str(out / "cache")
    return content_digests(sorted((out / "sounds").iterdir()))


def _bytes(values: object) -> tuple[str, tuple[int, ...], bytes]:
    array = np.asarray(values)
    return array.dtype.str, array.shape, array.tobytes()


KINDS = (
    FileKind("store", (works.extract_small,), _read_store, ("store/*",)),
    FileKind("gains", (_gains,), _read_gains, ("*.safetensors",)),  # the card is for people
    FileKind("model", (_model,), _read_model),
    FileKind("results", (_result,), _read_result),
    FileKind("tables", works.run_until("reweight"), _read_tables,
         ("tables/*.csv", "tables/*.parquet", "tables/*.json", "tables/SHA256SUMS")),
    FileKind("run", (works.trained, works.whole_run), _read_run,
         ("run.json", "steps.json", "previews/*")),
    FileKind("atlas data", works.run_until("report"), _read_media, ("atlas-data/**/*",)),
    FileKind("training", (_training,), _read_training,
         ("training/audio/checkpoint.*", "training/cache/*.safetensors",
          "training/text/tokenizer.json")),
    FileKind("cache", (works.trained, works.keep_vectors), _read_cache, ("cache/embeddings/**/*",)),
    FileKind("digests of data", (_contents,), _read_contents, ("cache/**/*.json",)),
)  # fmt: skip
