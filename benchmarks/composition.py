"""Every number of docs/composition.md: which heads carry composition, and what follows from it.

    python benchmarks/composition.py --model composing=FOLDER --model control=FOLDER \
        --root ESC-50 --out docs/results/composition

For every model: F, G, H; the effect of every head on synthetic and real pairs of order and of
attributes (attribution on all pairs, exact on some of them); whether the same heads carry all four;
what is left of H and of zero-shot when the heads that carry order are taken out, or scaled; rank,
angle and separation of both sides; how well time maps localise. Heads are chosen on one half of the
groups of pairs, and what becomes of H is reported on the other half.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import residual_audio as ra
from residual_audio import provenance
from residual_audio.ablation.removal import Means, reference_means
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.embeddings.embedder import EmbeddingSettings
from residual_audio.embeddings.prompts import find_prompts
from residual_audio.evaluation.composition import evaluate_compa
from residual_audio.evaluation.localisation import evaluate_localisation
from residual_audio.evaluation.zero_shot import evaluate_zero_shot
from residual_audio.metrics.cloud_shape import modality_gap, rank_me
from residual_audio.metrics.uncertainty import correlation
from residual_audio.passes.kept import load_passes
from residual_audio.passes.loop import Hearing
from residual_audio.patching.exchanges import Exchanges, exchanges_of_pairs
from residual_audio.patching.interchange import ExchangeWay, interchange
from residual_audio.patching.outcomes import Interchanged, agreement, effects_table
from residual_audio.patching.sets import halves
from residual_audio.report.table_files import write_csv
from residual_audio.results import write_result
from residual_audio.surface.model import Model
from residual_audio.types import Result, Score

KINDS = ("order", "attribute")
SETS = tuple(f"{where}-{kind}" for kind in KINDS for where in ("synthetic", "real"))
MIN_GAP = 1e-4
PLAIN = EmbeddingSettings(cache=False)


def sets_of(root: Path, n_pairs: int, wording: str) -> dict[str, Dataset]:
    """Synthetic pairs of a seed nothing was trained on, and real ones of fold 4.

    All in the same wordings: otherwise a difference between sets may be one of words, not sound.
    """
    found = {}
    for kind in KINDS:
        found[f"synthetic-{kind}"] = load_dataset(
            "synthetic", kind=kind, n_clips=2 * n_pairs, seed=977, wording=wording
        )
        found[f"real-{kind}"] = load_dataset(
            "joined",
            root,
            of="esc50",
            folds=4,
            kind=kind,
            n_items=n_pairs,
            seed=977,
            wording=wording,
        )
    return found


def tasks(args: argparse.Namespace) -> Iterator[Result]:
    """One result after the other; each is written as soon as it is there."""
    data = sets_of(args.root, args.pairs, args.wording)
    data = {key: data[key] for key in args.sets}
    esc50 = load_dataset("esc50", args.root).select(folds=[4])
    for given in args.model:
        label, _, name = given.partition("=")
        model = ra.load_model(name)
        model.name = label
        runs: dict[str, Interchanged] = {}
        halved: dict[str, tuple[Exchanges, Exchanges]] = {}
        for key, pairs in data.items():
            yield named(evaluate_compa(model, pairs, embedding=PLAIN), key)
            yield geometry(model, pairs, key)
            if args.scores_only:
                continue
            exchanges = exchanges_of_pairs(model, pairs)
            runs[key] = interchange(exchanges, "head", ExchangeWay("attribution", min_gap=MIN_GAP))
            halved[key] = halves(exchanges, 0)
            write_csv(
                args.out / f"patching_{label}_{key}.csv", effects_table(runs[key], f"{label}-{key}")
            )
            yield heads_result(model, pairs, key, runs[key], exchanges, args.exact)
        if args.scores_only:
            continue
        yield same_heads(model, runs)
        if "real-order" in data:
            yield evaluate_localisation(model, *halves_named(data["real-order"], args.root))
        for key in args.taken_out:
            yield from taken_out(model, data, esc50, halved, key, args)


def named(result: Result, split: str) -> Result:
    return replace(result, split=split, per_item=None)


def geometry(model: Model, pairs: Dataset, split: str) -> Result:
    """Rank of both sides and the angle between them, on the clips and captions of the pairs."""
    captions = list(dict.fromkeys(c for pair in pairs.pairs for c in pair.captions[:2]))
    clips = [clip for pair in pairs.pairs for clip in pair.clips[:2]]
    waves = [pairs.read(clip, model.sample_rate_hz) for clip in clips]
    audio = model.embed_audio(waves, sample_rate=model.sample_rate_hz)
    text = model.embed_text(captions)
    gap = modality_gap(audio, text)
    nan = float("nan")
    scores = (
        Score("rank_me_text", rank_me(text), nan, nan, len(text)),
        Score("rank_me_audio", rank_me(audio), nan, nan, len(audio)),
        Score("modality_angle_deg", gap.angle_deg, nan, nan, len(audio)),
    )
    about = provenance.collect(model=model, dataset=pairs)
    return Result("geometry", model.name, pairs.name, split, scores, provenance=about)


def heads_result(
    model: Model, pairs: Dataset, split: str, run: Interchanged, given: Exchanges, n_exact: int
) -> Result:
    """Effects of all heads, and how attribution ranks them against exact exchange of some pairs."""
    table = effects_table(run, split)
    scores = tuple(
        Score(
            r["unit"],
            r["effect_by_gap"],
            r["effect_by_gap_low"],
            r["effect_by_gap_high"],
            r["n"],
            0.0,
        )
        for r in table.rows()
    )
    some = given.part(range(min(n_exact, len(given))))
    exact = interchange(some, "head", ExchangeWay(min_gap=MIN_GAP))
    slope = interchange(some, "head", ExchangeWay("attribution", min_gap=MIN_GAP))
    same = agreement(exact, slope)
    details = {
        "attribution_against_exact": {"spearman": same.value, "n_exchanges": len(some)},
        "n_heads_q_below_0.05": int((table["q"] <= 0.05).sum()),
        "mean_gap": float(np.abs(run.gap).mean()),
        "share_of_right_gaps": float((run.gap > 0).mean()),
        "notes": list(table.notes),
    }
    about = provenance.collect(model=model, dataset=pairs)
    return Result("patching", model.name, pairs.name, split, scores, None, about, 1, details)


def same_heads(model: Model, runs: Mapping[str, Interchanged], top: int = 10) -> Result:
    """Rank correlation of head effects between sets of pairs, and how many top ones are shared."""
    names = list(runs)
    scores = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            x, y = runs[a].weighted, runs[b].weighted
            same = correlation(x, y, n_permutations=2000)
            nan = float("nan")
            scores.append(Score(f"spearman {a} {b}", same.value, nan, nan, same.n, 0.0))
            shared = len(set(np.argsort(-x)[:top]) & set(np.argsort(-y)[:top]))
            scores.append(
                Score(f"shared top {top} {a} {b}", shared, nan, nan, top, top * top / len(x))
            )
    about = provenance.collect(model=model)
    return Result("same-heads", model.name, "pairs", "all", tuple(scores), provenance=about)


def halves_named(joined: Dataset, root: Path) -> tuple[Dataset, dict[str, tuple[str, str]]]:
    """What is heard first and second in each clip of joined pairs: its name holds both names."""
    label = {clip.id.replace("/", "_"): clip.label for clip in load_dataset("esc50", root).clips}
    texts = {}
    for clip in joined.clips:
        name, side = clip.id.rsplit("-", 1)
        two = [f"This is a sound of {label[part]}." for part in name.split("+")]
        texts[clip.id] = (two[0], two[1]) if side == "a" else (two[1], two[0])
    return joined, texts


def taken_out(
    model: Model,
    data: Mapping[str, Dataset],
    esc50: Dataset,
    halved: Mapping[str, tuple[Exchanges, Exchanges]],
    key: str,
    args: argparse.Namespace,
) -> Iterator[Result]:
    """H of the reporting half and zero-shot, with heads at their mean, or scaled."""
    choosing, reporting = halved[key]
    n_heads: int = args.heads
    found = interchange(choosing, "head", ExchangeWay("attribution", min_gap=MIN_GAP))
    order = [found.targets[i].name for i in np.argsort(-found.weighted)]
    random = np.random.default_rng(0).permutation(len(order))[:n_heads]
    kept = {item.pair for item in reporting.items}
    pairs = [pair for pair in data[key].pairs if pair.id in kept]
    clips = tuple(clip for pair in pairs for clip in pair.clips)
    judged = replace(data[key], pairs=tuple(pairs), clips=clips)
    means = esc50_means(model, esc50)
    edits: dict[str, dict[str, object]] = {"as it is": {}}
    for name, heads in {
        "without top heads": order[:n_heads],
        "without random heads": [order[i] for i in random],
        "without bottom heads": order[-n_heads:],
    }.items():
        edits[name] = {head: mean_of(model, means, head) for head in heads}
    for factor in args.factors:
        edits[f"top heads times {factor}"] = {head: ra.scale(factor) for head in order[:n_heads]}
    prompts = find_prompts("dataset", esc50.template)
    for name, edit in edits.items():
        changed = model.with_edit(edit) if edit else model  # type: ignore[arg-type]
        compa = evaluate_compa(changed, judged, embedding=PLAIN)
        zero = evaluate_zero_shot(changed, esc50, prompts, embedding=PLAIN)
        scores = (*(compa[s] for s in "fgh"), zero["top1"])
        about = provenance.collect(model=model, dataset=data[key])
        details = {"edit": name, "heads": sorted(edit)}
        yield Result(
            "heads-out",
            model.name,
            data[key].name,
            f"{key} {name}",
            scores,
            None,
            about,
            1,
            details,
        )


def esc50_means(model: Model, esc50: Dataset) -> Means:
    """Means of all heads over some clips of fold 4: no label is looked at."""
    part = esc50.select(limit=100)
    passes = load_passes(model, part, [clip.id for clip in part.clips], Hearing())
    return reference_means(model, passes.batches())


def mean_of(model: Model, means: Means, head: str) -> object:
    from residual_audio.types import Head, attention_site

    found = Head.parse(head)
    site = attention_site(found, model.encoder.sites)
    return ra.mean(means.raw[site][found.head].numpy())


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", required=True, help="label=name or folder")
    parser.add_argument("--root", type=Path, required=True, help="ESC-50 with fold 4")
    parser.add_argument("--out", type=Path, default=Path("docs/results/composition"))
    parser.add_argument("--wording", default="plain", help="plain, many, held-out, or a frame")
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--exact", type=int, default=8, help="exchanges that are also run exactly")
    parser.add_argument("--heads", type=int, default=10, help="heads that are taken out together")
    parser.add_argument("--factors", nargs="*", type=float, default=[0.5, 1.5, 2.0])
    parser.add_argument("--taken-out", nargs="*", default=["synthetic-order", "real-order"])
    parser.add_argument(
        "--scores-only", action="store_true", help="F, G, H and geometry: enough for snapshots"
    )
    args = parser.parse_args(argv)
    for result in tasks(args):
        path = write_result(result, args.out)
        print(path.name, *(f"{s.name} {s.value:.3f}" for s in result.scores[:4]), flush=True)


if __name__ == "__main__":
    main()
