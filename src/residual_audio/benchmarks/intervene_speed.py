"""The interventions' speed against the naive way, side by side in one run on the same clips."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from residual_audio.ablation.effects import Effects
from residual_audio.ablation.exact import exact_ablation
from residual_audio.ablation.first_order import first_order_ablation
from residual_audio.ablation.removal import remove
from residual_audio.benchmarks.exchange_speed import exchange_speed
from residual_audio.capture.capture_settings import CaptureSettings, SamplePlan
from residual_audio.capture.operators import encoder_operators
from residual_audio.capture.recorder import Recorder
from residual_audio.direct.contributions import Captured, Contributions
from residual_audio.judge.answers import Judge
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.metrics.uncertainty import correlation
from residual_audio.models.registry import load_model
from residual_audio.passes.kept import Passes
from residual_audio.passes.lengths import Rows
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.axes import Components, chosen_units, direct_spectra, kept_parts
from residual_audio.reweight.cached import Entrances, embed_from_features
from residual_audio.reweight.descent import FitSettings, fit
from residual_audio.reweight.gains import identity_gains
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.objectives import cross_entropy
from residual_audio.reweight.terms import direct_terms
from residual_audio.types import Unit, attention_site, units_of

N_CLASSES = 10
BATCH = 8


def bench_intervene(
    model_name: str = "htsat-tiny-random",
    n_clips: int = 8,
    naive_heads: int = 12,
    seed: int = 0,
    progress: Progress = SILENT,
) -> dict[str, object]:
    """Seconds and ratios; noise clips, as speed does not depend on what is heard."""
    model = load_model(model_name, "cpu")
    draw = torch.Generator().manual_seed(seed)
    # sounds that differ in loudness, colour and rhythm, so that heads have something to tell apart
    waves = torch.randn(n_clips, model.spec.n_samples, generator=draw)
    seconds = torch.arange(model.spec.n_samples) / model.sample_rate_hz
    rate = torch.rand(n_clips, 1, generator=draw) * 8 + 0.5
    pitch = 200 * 2 ** (4 * torch.rand(n_clips, 1, generator=draw))
    tone = torch.sin(2 * torch.pi * pitch * seconds)
    waves = 0.2 * tone + 0.1 * waves * torch.sin(torch.pi * rate * seconds).square()
    with torch.no_grad():
        features = torch.cat([model.front_end(w) for w in waves.split(BATCH)])
        passes = Passes(model, Rows.of(features))
        joint = torch.cat([model.joint(model.encode(f)) for _, f in passes.batches(size=BATCH)])
    texts = F.normalize(torch.randn(N_CLASSES, joint.shape[1], generator=draw), dim=-1)
    # every clip's own answer, so that the measures respond to its embedding
    answer = (F.normalize(joint, dim=-1) @ texts.T).argmax(1)
    judge = Judge(texts, F.one_hot(answer, N_CLASSES).bool(), 20.0)
    found: dict[str, Any] = {
        "model": model_name,
        "n_clips": n_clips,
        "threads": torch.get_num_threads(),
    }
    progress.step("ablating", unit="heads")
    found |= _ablation(model, passes, judge, naive_heads, seed)
    progress.step("exchanging", unit="heads")
    found |= exchange_speed(model, features, naive_heads, seed)
    progress.step("training", unit="epochs")
    found |= _training(model, passes, judge)
    return found


def _ablation(
    model: Any, passes: Passes, judge: Judge, naive_heads: int, seed: int
) -> dict[str, object]:
    sites = model.encoder.sites
    units = units_of(sites, "head")
    sample = np.random.default_rng(seed).permutation(len(units))[:naive_heads]

    @torch.no_grad()
    def naive() -> None:
        for i in sample:
            edit = remove(units[i], sites)
            for _, features in passes.batches(size=BATCH):
                model.joint(model.encode(features, edit=edit))

    _warm(model, passes)
    # in turn, the best of several of both: the pace of a machine changes while this runs
    naive_seconds = _best(naive, 2)
    exact = exact_ablation(model, passes.batches(size=BATCH), judge, units)
    naive_seconds = min(naive_seconds, _best(naive, 1))
    again = exact_ablation(model, passes.batches(size=BATCH), judge, units)
    naive_seconds = min(naive_seconds, _best(naive, 1)) * len(units) / len(sample)
    exact_seconds = min(exact.about.seconds, again.about.seconds)

    def estimate() -> Effects:
        return first_order_ablation(model, passes.batches(size=BATCH), judge, units)

    first = estimate()
    first_seconds = _best(estimate, 3)
    same = correlation(exact.importance("margin"), first.importance("margin"), n_permutations=100)
    return {
        "n_heads": len(units),
        "naive_heads_timed": len(sample),
        "naive_seconds": naive_seconds,
        "exact_seconds": exact_seconds,
        "first_order_seconds": first_seconds,
        "exact_ratio": naive_seconds / exact_seconds,
        "first_order_ratio": naive_seconds / first_seconds,
        "first_order_rank_correlation": same.value,
    }


def _training(model: Any, passes: Passes, judge: Judge) -> dict[str, object]:
    sites, n = model.encoder.sites, len(passes)
    plan = SamplePlan(n, CaptureSettings.of("heads,direct"))
    recorder = Recorder(model.encoder, plan)
    parts = [recorder.run(features) for _, features in passes.batches(size=BATCH)]
    arrays = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    source = Captured(sites, arrays, encoder_operators(model.encoder, ("direct",)))
    contributions = Contributions(source)
    heads = units_of(sites, "head")
    # more rows than components, so that a few clips give as many gains as a data set would
    terms = direct_terms(contributions, _full(contributions, heads))
    values = torch.ones(terms.n_gains, requires_grad=True)
    loss, rows = cross_entropy(judge), np.arange(n)
    settings = FitSettings(epochs=1, batch_size=BATCH, learning_rate=1e-3)

    def direct_epoch() -> None:
        fit(
            lambda r: model.head.from_latent(terms.latent(values, r)),
            [values],
            loss,
            rows,
            None,
            settings,
        )

    def network(units: Sequence[Unit]) -> NetworkGains:
        spectra = {}
        for unit in units:
            (head,) = unit.heads
            site = attention_site(head, sites)
            raw = arrays[f"heads/{site}"][:, head.head].astype(np.float64)
            spectrum = fit_spectrum(raw)
            axes = np.linalg.qr(np.random.default_rng(0).normal(size=(raw.shape[1],) * 2))[0]
            spectra[unit.name] = replace(spectrum, basis=axes)
        return NetworkGains(identity_gains(spectra), sites)

    everywhere = network(heads)
    last = max(site.stage for site in sites)
    late = network(chosen_units(sites, "head", [last]))
    entrances = Entrances.record(model, passes.batches(size=BATCH), n, late.first_block)

    def epoch(gains: NetworkGains, embed: Any) -> Callable[[], None]:
        return lambda: _ignore(fit(embed, list(gains.parameters()), loss, rows, None, settings))

    direct = _best(direct_epoch, 5)
    inside = _best(epoch(everywhere, embed_from_features(model, everywhere, passes.features)), 1)
    cached = _best(epoch(late, entrances.embed(model, late)), 3)
    uncached = _best(epoch(late, embed_from_features(model, late, passes.features)), 2)
    return {
        "n_gains": terms.n_gains,
        "direct_epoch_seconds": direct,
        "network_epoch_seconds": inside,
        "cached_stage3_epoch_seconds": cached,
        "uncached_stage3_epoch_seconds": uncached,
        "direct_epoch_ratio": inside / direct,
        "cached_epoch_ratio": uncached / cached,
    }


def _full(contributions: Contributions, heads: Sequence[Unit]) -> dict[str, Any]:
    """Every head with d_head axes, as a data set of many clips would give it."""
    d_head = contributions.sites[0].d_head
    found = kept_parts(direct_spectra(contributions, heads), Components(k=d_head))
    draw = np.random.default_rng(0)
    out = {}
    for unit, spectrum in found.items():
        missing = d_head - len(spectrum.basis)
        extra = draw.normal(size=(missing, spectrum.basis.shape[1]))
        axes = np.linalg.qr(np.concatenate([spectrum.basis, extra]).T)[0].T
        values = np.concatenate([spectrum.eigenvalues, np.zeros(missing)])
        out[unit] = type(spectrum)(spectrum.mean, axes, values, spectrum.n)
    return out


@torch.no_grad()
def _warm(model: Any, passes: Passes) -> None:
    for _, features in passes.batches(size=BATCH):
        model.joint(model.encode(features))


def _best(work: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def _ignore(value: object) -> None:
    return None
