"""ResiDual gains on just the heads that carry order: do they change H?

    python benchmarks/composition_gains.py --model nano=nano --root ESC-50

Heads are chosen, and their gains fitted, on one half of the groups of pairs (own caption over the
exchanged one and own clip likewise, as in training); F, G and H are reported on the other half, and
zero-shot on fold 4, beside the same fit on as many random heads.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from composition import MIN_GAP, PLAIN, sets_of
from torch import Tensor
from torch.nn import functional as F

import residual_audio as ra
from residual_audio import provenance
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.embeddings.prompts import find_prompts
from residual_audio.evaluation.composition import evaluate_compa
from residual_audio.evaluation.zero_shot import evaluate_zero_shot
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.patching.exchanges import Exchanges, exchanges_of_pairs
from residual_audio.patching.interchange import ExchangeWay, interchange
from residual_audio.patching.sets import halves
from residual_audio.results import write_result
from residual_audio.reweight.gains import identity_gains
from residual_audio.reweight.network import NetworkGains
from residual_audio.surface.model import Model
from residual_audio.training.losses import exchanged
from residual_audio.types import Gains, Result

LARGEST = 4.0
"""Gains stay between 0 and this."""


def pairs_of(data: Dataset, half: Exchanges) -> Dataset:
    kept = {item.pair for item in half.items}
    pairs = tuple(pair for pair in data.pairs if pair.id in kept)
    return replace(data, pairs=pairs, clips=tuple(clip for pair in pairs for clip in pair.clips))


def fit(model: Model, pairs: Dataset, heads: Sequence[str], steps: int, lr: float) -> Gains:
    """Adam on the gains of the heads' principal components, all pairs in every step."""
    clips = [clip for pair in pairs.pairs for clip in pair.clips[:2]]
    waves = [pairs.read(clip, model.sample_rate_hz) for clip in clips]
    cache = model.run(waves, sample_rate=model.sample_rate_hz, keep=list(heads))
    spectra = {h: fit_spectrum(np.asarray(cache[h]).reshape(-1, cache[h].shape[-1])) for h in heads}
    layer = NetworkGains(identity_gains(spectra), model.encoder.sites)
    optimiser = torch.optim.Adam(layer.parameters(), lr=lr)
    said = [text for pair in pairs.pairs for text in pair.captions[:2]]
    text = torch.as_tensor(model.embed_text(said)).unflatten(0, (-1, 2, 1))
    features = exchanges_of_pairs(model, pairs).features.groups[0]
    told_apart = torch.ones(len(pairs.pairs), 1, dtype=torch.bool)
    for _ in range(steps):
        audio = joint(model, features, layer).unflatten(0, (-1, 2))
        loss = exchanged(audio, text, torch.tensor(model.logit_scale), told_apart)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for value in layer.values:
                value.clamp_(0.0, LARGEST)
    found = {h: v.detach().double().numpy() for h, v in zip(heads, layer.values, strict=True)}
    return Gains(found, spectra, fitted_on={"pairs": len(pairs.pairs), "steps": steps, "lr": lr})


def joint(model: Model, features: Tensor, layer: NetworkGains) -> Tensor:
    parts = [
        model.head(model.encoder.encode(part, edit=layer.edit())) for part in features.split(20)
    ]
    return F.normalize(torch.cat(parts), dim=-1)


def tasks(args: argparse.Namespace) -> Iterator[Result]:
    data = sets_of(args.root, args.pairs, args.wording)
    esc50 = load_dataset("esc50", args.root).select(folds=[4])
    prompts = find_prompts("dataset", esc50.template)
    for given in args.model:
        label, _, name = given.partition("=")
        model = ra.load_model(name)
        model.name = label
        for key in args.sets:
            choosing, reporting = halves(exchanges_of_pairs(model, data[key]), 0)
            run = interchange(choosing, "head", ExchangeWay("attribution", min_gap=MIN_GAP))
            order = [run.targets[i].name for i in np.argsort(-run.weighted)]
            random = np.random.default_rng(0).permutation(len(order))[: args.heads]
            judged, learned = pairs_of(data[key], reporting), pairs_of(data[key], choosing)
            for which, heads in {
                "top": order[: args.heads],
                "random": [order[i] for i in random],
            }.items():
                gains = fit(model, learned, heads, args.steps, args.lr)
                changed = model.with_edit(gains)
                compa = evaluate_compa(changed, judged, embedding=PLAIN)
                zero = evaluate_zero_shot(changed, esc50, prompts, embedding=PLAIN)
                moved = np.concatenate([value - 1 for value in gains.gains.values()])
                details = {
                    "heads": sorted(heads),
                    "n_gains": int(moved.size),
                    "rms_change": float(np.sqrt(np.square(moved).mean())),
                    "fitted_on": dict(gains.fitted_on),
                }
                yield Result(
                    "fitted-gains",
                    label,
                    data[key].name,
                    f"{key} {which} heads",
                    (*(compa[s] for s in "fgh"), zero["top1"]),
                    None,
                    provenance.collect(model=model, dataset=data[key]),
                    1,
                    details,
                )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", required=True, help="label=name or folder")
    parser.add_argument("--root", type=Path, required=True, help="ESC-50 with fold 4")
    parser.add_argument("--out", type=Path, default=Path("docs/results/composition"))
    parser.add_argument("--wording", default="plain")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--heads", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--sets", nargs="*", default=["synthetic-order", "real-order"])
    args = parser.parse_args(argv)
    for result in tasks(args):
        path = write_result(result, args.out)
        print(path.name, *(f"{s.name} {s.value:.3f}" for s in result.scores), flush=True)


if __name__ == "__main__":
    main()
