"""The steps of a run: each takes the workshop, writes files, and says in one line what it found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from residual_audio.pipeline.previews import choose, write_previews
from residual_audio.pipeline.steps import Done
from residual_audio.pipeline.workshop import Workshop

if TYPE_CHECKING:
    from residual_audio.types import Result

CAPTURE = ("heads", "blocks", "stages", "direct", "moments", "attention", "tokens")
QUICK_METHODS = ("coarse", "linear-probe-joint")
MAIN_METHODS = (
    "coarse", "shuffled", "rule-*", "output-gains", "all-but-the-top", "whitening",
    "ridge", "linear-probe-*",
)  # fmt: skip
"""Besides ResiDual on all heads: two controls, and what costs little. All of them together would
take several times as long as the encoder."""
CAPTIONS = ("heads-23", "residual", "unbounded", "coarse")
N_PREVIEWS = 8


def extract_store(at: Workshop) -> str:
    """The store, which knows itself what is up to date; one line about it."""
    from residual_audio.data.remembered import RunSource, remember_source
    from residual_audio.extraction.extraction import extract

    kinds = list(CAPTURE)
    if not at.model.head.reads_latent:
        kinds.remove("direct")  # its joint embedding is not a function of the latent
    asked = at.settings
    made = extract(
        at.model,
        at.dataset,
        at.out,
        capture=kinds,
        batch_size=asked.batch_size,
        long=asked.long,
        hop_s=asked.hop_s,
        seed=asked.seed,
        progress=at.progress,
    )
    remember_source(at.out, RunSource(at.dataset.name, asked.root, asked.data_options))
    state = f"{made.n_shards_made} shards made" if made.n_shards_made else "up to date"
    skipped = f", {len(made.skipped)} skipped" if made.skipped else ""
    return f"{made.n_ok} clips{skipped}, {state}"


def analyse_store(at: Workshop) -> Done:
    """Tables of every head, block and stage."""
    from residual_audio.analysis.analysis import Options, analyse
    from residual_audio.analysis.parts import PARTS
    from residual_audio.report.write import write_analysis
    from residual_audio.store.by_clip import by_clip
    from residual_audio.store.sampled import sampled

    slow = {"kernel", "intervals", "curves", "curved"} if at.settings.quick else set()
    parts = frozenset(PARTS) - slow
    options = Options(parts=parts, seed=at.settings.seed, umap=not at.settings.quick)
    analysis = analyse(sampled(by_clip(at.store), at.settings.seed), options, at.progress)
    n_heads, n_tables = len(analysis.tables["heads"]), len(analysis.tables)
    return Done(write_analysis(analysis, at.out), f"{n_heads} heads, {n_tables} tables")


def ablate_store(at: Workshop) -> Done:
    """What every part is worth on the direct path, and blocks exactly on some clips."""
    from residual_audio.ablation.ablation import AblationSettings, ablate
    from residual_audio.ablation.interventions import interventions_on
    from residual_audio.passes.kept import load_passes
    from residual_audio.passes.loop import Hearing, heard_as
    from residual_audio.report.write import write_tables

    quick, store = at.settings.quick, at.store
    levels = ("head", "attention") if quick else ("head", "attention", "mlp", "stage")
    asked = AblationSettings(levels, curves=not quick)
    tables = ablate(interventions_on(store), asked, at.progress)
    n = min(at.settings.n_exact, len(store))
    if n:
        rows = np.linspace(0, len(store) - 1, n).round().astype(int)
        ids = [str(store.clips["id"][i]) for i in rows]
        heard = Hearing(heard_as(store.run_info.long), batch_size=16)
        sha256 = store.model_info.sha256
        passes = load_passes(at.model, at.heard, ids, heard, sha256=sha256, progress=at.progress)
        exact = AblationSettings(("attention",), ("exact",), curves=False)
        tables += ablate(interventions_on(store, rows, passes=passes), exact, at.progress)
    return Done(write_tables(at.out, tables), f"{len(tables)} tables, blocks exactly on {n} clips")


def reweight_store(at: Workshop) -> Done:
    """Adaptations from the store alone, on grouped folds: the main ones, or every one."""
    from residual_audio.adaptation.adapted import WHOLE, AdaptSettings, adapt
    from residual_audio.adaptation.methods.registry import MAIN_KEY
    from residual_audio.report.write import write_tables
    from residual_audio.results import write_result
    from residual_audio.reweight.gain_files import save_gains

    quick = at.settings.quick
    main = (MAIN_KEY, *(QUICK_METHODS if quick else MAIN_METHODS))
    settings = AdaptSettings(
        n_folds=at.settings.n_folds,
        seeds=(at.settings.seed,),
        methods=() if at.settings.every_method else main,
        every_method=at.settings.every_method,
        skip_missing=True,
        retention=not quick,
        name=WHOLE,
    )
    found = adapt(at.store, settings, progress=at.progress)
    written = write_tables(at.out, found.tables)
    written.append(write_result(found.result, at.out / "results"))
    for name, gains in found.gain_files.items():
        written.append(save_gains(gains, at.out / "gains" / name))
    return Done(written, f"{len(found.outcomes)} methods on grouped folds")


def evaluate_store(at: Workshop) -> Done:
    """Scores from the store, and clips to listen to: zero-shot, or, where the model has no text
    side, by class centroids."""
    from residual_audio.evaluation import by_centroids, zero_shot
    from residual_audio.results import write_result

    at.progress.step("evaluate", 2, "parts")
    by_texts = at.store.class_embeddings() is not None
    evaluate = zero_shot.evaluate_store if by_texts else by_centroids.evaluate_store
    result = evaluate(at.store, seed=at.settings.seed)
    written = [write_result(result, at.out / "results")]
    at.progress.advance()
    written += write_previews(at.out, at.dataset, _listen_to(result, at.settings.seed))
    at.progress.advance()
    top1 = result["top1"]
    line = f"{result.task} top-1 {top1.value:.1%} [{top1.low:.1%}, {top1.high:.1%}], n = {top1.n}"
    return Done(written, line)


def has_captions(at: Workshop) -> bool:
    """Whether there is anything to retrieve by: captions, and a model that reads them."""
    captioned = sum(any(c.strip() for c in clip.captions) for clip in at.dataset.clips)
    return captioned > 1 and at.store.has_text


def retrieve_store(at: Workshop) -> Done:
    """Retrieval both ways among all captioned clips, and before and after gains on folds.

    A quick run of labelled clips fits gains to their labels only.
    """
    from residual_audio.embeddings.vector_cache import Embedded
    from residual_audio.evaluation.retrieval import evaluate_retrieval
    from residual_audio.results import write_result

    store, seed = at.store, at.settings.seed
    ids = tuple(str(name) for name in store.clips["id"])
    vectors = np.array(store.embedding(), np.float32)
    embedded = Embedded(vectors, ids, store.skipped, store.remarks)
    result = evaluate_retrieval(at.model, at.dataset, seed=seed, embedded=embedded)
    written = [write_result(result, at.out / "results")]
    if not (at.settings.quick and any(store.clips["label"])):
        written += _gains_by_captions(at)
    t2a, a2t = result["t2a_r1"], result["a2t_r1"]
    return Done(
        written, f"R@1 {t2a.value:.1%} of captions for clips, {a2t.value:.1%} of clips for captions"
    )


def _gains_by_captions(at: Workshop) -> list[Path]:
    from residual_audio.adaptation.adapted import AdaptSettings
    from residual_audio.adaptation.adapted_captions import NAME, adapt_to_captions
    from residual_audio.adaptation.caption_problem import caption_problem, captioned_rows
    from residual_audio.report.write import write_tables
    from residual_audio.results import write_result

    asked, store = at.settings, at.store
    last = f"heads-{max(site.stage for site in store.sites)}"
    settings = AdaptSettings(
        n_folds=asked.n_folds,
        seeds=(asked.seed,),
        methods=(last,) if asked.quick else (last, *CAPTIONS),
        skip_missing=True,
        name=NAME,
    )
    problem = caption_problem(store, captioned_rows(store), embed=at.model.embed_text)
    found = adapt_to_captions(problem, settings, heard=store.heard_before, progress=at.progress)
    return [*write_tables(at.out, found.tables), write_result(found.result, at.out / "results")]


def _listen_to(result: Result, seed: int) -> list[dict[str, object]]:
    """Clips that were understood and clips that were not, with what the model heard."""
    items = result.per_item or {}
    correct = [a == b for a, b in zip(items["label"], items["predicted"], strict=True)]
    return [
        {
            "id": items["id"][i],
            "label": items["label"][i],
            "prediction": items["predicted"][i],
            "score": items["probability"][i] if correct[i] else None,
        }
        for i in choose(correct, N_PREVIEWS, seed)
    ]


def listen_to_heads(at: Workshop) -> Done:
    """Sounds, pictures and responses by patch of the clips that heads point at."""
    from residual_audio.pipeline.heard_clips import write_listening

    written = write_listening(
        at.out,
        at.model,
        at.heard,
        at.store,
        n_previews=at.settings.n_previews,
        progress=at.progress,
    )
    n_sounds = sum(path.suffix == ".ogg" for path in written)
    return Done(written, f"{n_sounds} clips to hear, with where heads respond")


def write_head_atlas(at: Workshop) -> Done:
    """The head atlas, from the files of all other steps."""
    from residual_audio.atlas.build import write_atlas

    made = write_atlas(at.out, progress=at.progress)
    return Done(
        made.files, f"{made.page.parent.name}/{made.page.name}, {made.n_bytes / 1e6:.1f} MB"
    )


def prepare_report() -> None:
    """Matplotlib takes a second to load, and half a core is idle in the steps before."""
    from residual_audio.report.figures import get_ready_to_draw

    get_ready_to_draw()


def write_report(at: Workshop) -> Done:
    """Figures and the page, from the files of the other steps."""
    from residual_audio.report.figures import draw_all
    from residual_audio.report.page import write_page

    drawn = draw_all(
        at.out, formats=("png",), processes=at.settings.processes, progress=at.progress
    )
    page = write_page(at.out)
    return Done([*drawn, page], f"{len(drawn)} figures and {page.name}")
