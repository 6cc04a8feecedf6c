"""From a run to its atlas: every piece of data on the shelf, then the page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio import __version__
from residual_audio.atlas.answer import answer_of
from residual_audio.atlas.class_answers import Answers, answers_of
from residual_audio.atlas.clip_pages import ClipPages, listing
from residual_audio.atlas.components import N_COMPONENTS, ComponentsOfRun, EndWords, words_of
from residual_audio.atlas.feature_pages import FeaturePages
from residual_audio.atlas.features import read_features
from residual_audio.atlas.front_piece import front_piece
from residual_audio.atlas.head_pages import HeadPages
from residual_audio.atlas.media import MISSING, Media, read_media
from residual_audio.atlas.move import base_piece, moved_rows, slider_units, unit_pieces
from residual_audio.atlas.numbers import Number, as_piece, numbers_of
from residual_audio.atlas.presets import presets_of
from residual_audio.atlas.shelf import Shelf
from residual_audio.atlas.two_runs import other_piece
from residual_audio.errors import InputError
from residual_audio.files import json_ready
from residual_audio.progress import SILENT, Progress
from residual_audio.provenance import without_machine_paths
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.store import Store, open_store

FOLDER = "atlas"


@dataclass(frozen=True)
class AtlasSettings:
    """How an atlas is written."""

    out: Path | None = None
    """None: `RUN/atlas`, or `RUN/atlas-with-OTHER` for two runs."""
    single_file: bool = False
    """Everything in one HTML file, for small runs."""
    other: Path | None = None
    """A second run to put beside the first."""
    features: Path | None = None
    """A file of units from elsewhere (`features.py`)."""
    seed: int = 0


@dataclass(frozen=True)
class Atlas:
    """An atlas on disk."""

    page: Path
    files: tuple[Path, ...] = field(repr=False)
    missing: tuple[str, ...] = ()
    """What could not be shown, and why."""

    @property
    def n_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)


def write_atlas(
    run: Path, settings: AtlasSettings | None = None, progress: Progress = SILENT
) -> Atlas:
    """Write the atlas of a run that has a store and tables; no model is loaded."""
    asked = settings or AtlasSettings()
    run = Path(run).expanduser()
    if not run.is_dir():
        raise InputError(f"'{run}' is not a run folder: make one with `residual-audio run`")
    store, tables = open_store(run), Tables(run)
    name = FOLDER if asked.other is None else f"{FOLDER}-with-{Path(asked.other).resolve().name}"
    shelf = Shelf(asked.out or run / name, asked.single_file)
    components, media = ComponentsOfRun(store), read_media(run, [str(i) for i in store.clips["id"]])
    progress.step("atlas", len(store.all_heads) + len(store), "pages")
    words = words_of(components, asked.seed)
    answers = answers_of(store)
    clip_pages = ClipPages(store, answers, components.contributions if components.direct else None)
    missing = _missing(media, components, words, answers)
    main = _main_piece(run, store, tables, words, missing)
    main["heads"]["ends"] = _end_labels(components)
    main["clips"] = listing(store, answers, media)
    main["terms"] = clip_pages.units
    main["seconds"] = media.seconds
    if answers is not None:
        main["classes"] = list(answers.classes)
        main["answered_by"] = answers.by
        if components.direct:
            main["move"] = _put_move(shelf, run, components, answers)
    if asked.other is not None:
        main["other"] = other_piece(run, Path(asked.other), store, tables)
    if asked.features is not None:
        feature_pages = FeaturePages(read_features(asked.features, store), store, asked.seed)
        main["features"] = feature_pages.listing()
        for number, piece in feature_pages.pieces():
            shelf.put(f"feature/{number}", piece)
    shelf.put("main", main)
    pages = HeadPages(store, tables, media)
    for one in components.all():
        shelf.put(f"head/{one.head}", pages.piece(one, words.get(str(one.head))))
        progress.advance()
    for row, piece in clip_pages.pieces(media):
        shelf.put(f"clip/{row}", piece)
        progress.advance()
    page = shelf.close(f"{main['title']} · head atlas")
    return Atlas(page, tuple(shelf.files), tuple(missing))


def _main_piece(
    run: Path,
    store: Store,
    tables: Tables,
    words: dict[str, list[dict[str, EndWords]]],
    missing: list[str],
) -> dict[str, Any]:
    """What the first view needs: the answer, all heads and all numbers."""
    heads = store.all_heads
    ids = [str(head) for head in heads]
    numbers = [*numbers_of(tables, ids), *_word_numbers(words, ids)]
    report = run / "report.html"
    return {
        "version": __version__,
        "title": without_machine_paths(f"{store.model_info.name} on {store.dataset_info.name}"),
        "model": json_ready(store.model_info, without_machine_paths),
        "dataset": store.dataset_info.name,
        "run": run.resolve().name,
        "n_clips": len(store),
        "template": store.template if store.has_text else None,
        "answer": answer_of(run, store, tables),
        "front": front_piece(tables),
        "missing": missing,
        "report": "../report.html" if report.is_file() else None,
        "heads": {
            "id": ids,
            "stage": [head.stage for head in heads],
            "block": [head.block for head in heads],
            "head": [head.head for head in heads],
            "words": [_shown_words(words.get(name)) for name in ids],
            "preferred": _preferred(tables, ids),
        },
        "n_components": N_COMPONENTS,
        "numbers": as_piece(numbers),
        "layout": _layout(tables, ids),
    }


def _word_numbers(words: dict[str, list[dict[str, EndWords]]], ids: list[str]) -> list[Number]:
    """How much better than chance the words of a head's first component are."""
    if not words:
        return []
    out = []
    for key, label in (("fit_z", "Fit of its words"), ("coherence_z", "Coherence of its words")):
        best = [max(getattr(w, key) for end in words[i] for w in end.values()) if words.get(i)
                else np.nan for i in ids]  # fmt: skip
        about = "best of its shown components and ends, in σ above random directions"
        out.append(Number(f"words.{key}", f"{label} (σ above chance)", "words", np.array(best),
                          better="higher", about=about))  # fmt: skip
    return out


def _shown_words(words: list[dict[str, EndWords]] | None) -> list[list[Any]]:
    """[text, at chance] of every end, for search and hover."""
    found: dict[str, bool] = {}
    for end in words or []:
        for one in end.values():
            for text in one.texts:
                found[text] = found.get(text, True) and one.at_chance
    return [[text, int(grey)] for text, grey in found.items()]


def _end_labels(components: ComponentsOfRun) -> list[list[list[Any]]]:
    """Of every head, the labels of the clips at the ends of its components, and how often."""
    labels = components.store.clips["label"]
    found = []
    for one in components.all():
        rows = [r for c in range(one.n_shown) for end in one.ends(c).values() for r in end]
        counts = Counter(str(labels[r]) for r in rows if labels[r] is not None)
        found.append([[label, n] for label, n in counts.most_common()])
    return found


def _preferred(tables: Tables, ids: list[str]) -> list[str | None] | None:
    try:
        table = tables["fisher"]
    except MissingTable:
        return None
    if "preferred_class" not in table:
        return None
    found = dict(zip(table["head_id"].tolist(), table["preferred_class"].tolist(), strict=True))
    return [found.get(name) for name in ids]


def _layout(tables: Tables, ids: list[str]) -> dict[str, object] | None:
    """Heads in a plane by the shape of their spectra."""
    try:
        table = tables.need("fingerprints", "map_x", "map_y")
    except MissingTable:
        return None
    place = {name: i for i, name in enumerate(table["head_id"].tolist())}
    rows = [place.get(name) for name in ids]
    how = tables.note("fingerprints") or "heads by the shape of their spectrum"
    return {
        "how": how,
        "x": [None if r is None else round(float(table["map_x"][r]), 4) for r in rows],
        "y": [None if r is None else round(float(table["map_y"][r]), 4) for r in rows],
    }


def _put_move(
    shelf: Shelf, run: Path, components: ComponentsOfRun, answers: Answers
) -> dict[str, Any]:
    """Data of the sliders; what the first view needs to offer them."""
    rows = moved_rows(components.store)
    shelf.put("move/base", base_piece(components.store, answers, rows))
    for unit, piece in unit_pieces(components, rows):
        shelf.put(f"move/{unit}", piece)
    offered = []
    for preset in presets_of(run, components, answers):
        shelf.put(f"preset/{preset.key}", preset.piece(rows))
        offered.append({"key": preset.key, "label": preset.label, "about": preset.about})
    return {"presets": offered, "stages": slider_units(components.store), "n_rows": len(rows)}


def _missing(
    media: Media,
    components: ComponentsOfRun,
    words: dict[str, list[dict[str, EndWords]]],
    answers: Answers | None,
) -> list[str]:
    found = []
    if not media.sounds:
        found.append(MISSING)
    if not components.direct:
        found.append(
            "no sliders and no terms of scores: the direct path to the joint embedding was not "
            "captured, or this model has none"
        )
    if not words:
        found.append("no words for components: the store has no text dictionary or no direct path")
    if answers is None:
        found.append(
            "no answers: there are fewer than two classes with labelled clips of several recordings"
        )
    return found
