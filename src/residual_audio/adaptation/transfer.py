"""Gains on data they were not fitted on: what they bring there, and what they cost."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import torch

from residual_audio.adaptation.divisions import folds_of
from residual_audio.adaptation.problem import Problem
from residual_audio.metrics import classification, uncertainty
from residual_audio.reweight.gains import check_fits, n_gains
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.terms import apply_direct
from residual_audio.types import FloatArray, Gains


class Transferred(TypedDict):
    """Zero-shot before and with the gains."""

    fitted_on: str | None
    applied_to: str | None
    path: str
    gains: int
    n: int
    top1_before: float
    top1_after: float
    gain: float
    gain_low: float
    gain_high: float
    macro_f1_before: float
    macro_f1_after: float


def embed_with(problem: Problem, gains: Gains) -> FloatArray:
    """Joint embeddings [clip, d] of a problem's clips with gains in place."""
    model = problem.about.get("model", {})
    check_fits(gains, problem.sites, problem.latent.shape[1], model.get("sha256"))
    with torch.no_grad():
        if gains.path == "direct":
            latent = torch.from_numpy(apply_direct(problem.direct, gains))
            return problem.from_latent(latent).numpy()
        passes = problem.encoder.passes
        acting = NetworkGains(gains, problem.sites)
        out = np.empty_like(problem.joint)
        for clips, features in passes.batches():
            encoded = passes.model.encoder.encode(features, edit=acting.edit())
            out[clips.numpy()] = passes.model.joint(acting.output(encoded)).numpy()
        return out


def transfer(problem: Problem, gains: Gains, seed: int = 0) -> Transferred:
    """Zero-shot before and with the gains on every clip, with the paired difference."""
    after = _answers(problem, embed_with(problem, gains))
    before = _answers(problem, problem.joint)
    hits = [
        (classification.true_rank(s, problem.codes) == 1).astype(np.float64)
        for s in (before, after)
    ]
    gap = uncertainty.paired_difference(hits[1], hits[0], groups=problem.groups, seed=seed)
    f1 = [
        float(classification.macro_f1(problem.codes, s.argmax(1), len(problem.classes))[0])
        for s in (before, after)
    ]
    fitted = dict(gains.fitted_on)
    return {
        "fitted_on": (fitted.get("dataset") or {}).get("name"),
        "applied_to": (problem.about.get("dataset") or {}).get("name"),
        "path": gains.path,
        "gains": n_gains(gains),
        "n": len(problem),
        "top1_before": float(hits[0].mean()),
        "top1_after": float(hits[1].mean()),
        "gain": gap.value,
        "gain_low": gap.low,
        "gain_high": gap.high,
        "macro_f1_before": f1[0],
        "macro_f1_after": f1[1],
    }


def _answers(problem: Problem, joint: FloatArray) -> FloatArray:
    """[clip, class]; without texts, by centroids of other grouped folds."""
    if not problem.by_centroids:
        return problem.scores(joint)
    return problem.scores_on(folds_of(problem.clips), joint)
