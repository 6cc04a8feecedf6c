"""What a sceptic would try first, on frozen embeddings: output transforms, ridge, linear probe.

Everything that is chosen (dimensions removed, ridge, strength of the probe) is chosen on held-out
clips of the training part; with too few clips to hold any out, defaults are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve

from residual_audio.adaptation.methods import DEFAULTS, RATES, Fitted, fit_chosen
from residual_audio.adaptation.problem import Problem, Split
from residual_audio.metrics.classification import softmax, true_rank
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.reweight.fit import Embed
from residual_audio.reweight.objectives import cross_entropy
from residual_audio.types import FloatArray


def _choose(
    candidates: Sequence[Any],
    scores_of: Callable[[Any, np.ndarray, np.ndarray], FloatArray],
    problem: Problem,
    split: Split,
    default: Any,
) -> Any:
    """The candidate with most held-out clips right; ties go to the better mean rank."""
    if not len(split.held_out):
        return default
    codes = problem.codes[split.held_out]

    def quality(candidate: Any) -> tuple[float, float]:
        rank = true_rank(scores_of(candidate, split.fit, split.held_out), codes)
        return float((rank == 1).mean()), -float(np.log(rank).mean())

    return max(candidates, key=quality)


def all_but_the_top(problem: Problem, split: Split, seed: int) -> Fitted:
    """Unit embeddings less their mean and first k components (Mu & Viswanath 2018), k chosen."""
    start = time.perf_counter()
    unit = _unit(problem.joint)
    texts = problem.judge.texts.numpy().astype(np.float64)

    def scores_of(k: int, train: np.ndarray, test: np.ndarray) -> FloatArray:
        spectrum = fit_spectrum(unit[train])
        top = spectrum.basis[:k]
        moved = unit[test] - spectrum.mean
        moved = moved - moved @ top.T @ top
        # texts lose their own mean and the same directions, so that both stay comparable
        other = texts - texts.mean(0)
        other = other - other @ top.T @ top
        return _unit(moved) @ _unit(other).T

    ks = [0, 1, 2, 3, 5, 8, 12, 20]
    k = _choose(ks, scores_of, problem, split, 1)
    return Fitted(
        scores_of(k, split.train, split.test), 1, time.perf_counter() - start, notes={"k": k}
    )


def whitening(problem: Problem, split: Split, seed: int) -> Fitted:
    """Embeddings whitened with shrinkage towards no change, the shrinkage chosen."""
    start = time.perf_counter()
    unit = _unit(problem.joint)
    texts = problem.judge.texts.numpy().astype(np.float64)

    def scores_of(shrinkage: float, train: np.ndarray, test: np.ndarray) -> FloatArray:
        spectrum = fit_spectrum(unit[train])
        values = spectrum.eigenvalues
        level = float(values.mean())
        scale = 1 / np.sqrt((1 - shrinkage) * values + shrinkage * level)
        whiten = spectrum.basis.T * scale @ spectrum.basis
        other = texts - texts.mean(0)
        return _unit((unit[test] - spectrum.mean) @ whiten) @ _unit(other @ whiten).T

    grid = [1.0, 0.9, 0.5, 0.2, 0.1, 0.03, 0.01]
    s = _choose(grid, scores_of, problem, split, 0.5)
    return Fitted(
        scores_of(s, split.train, split.test),
        1,
        time.perf_counter() - start,
        notes={"shrinkage": s},
    )


def output_gains(problem: Problem, split: Split, seed: int) -> Fitted:
    """One gain a principal component of the joint embedding, trained as ResiDual is."""
    start = time.perf_counter()
    spectrum = fit_spectrum(problem.joint[split.train].astype(np.float64))
    keep = spectrum.eigenvalues > 1e-10 * spectrum.eigenvalues[0]
    basis = torch.from_numpy(spectrum.basis[keep].astype(np.float32))
    mean = torch.from_numpy(spectrum.mean.astype(np.float32))
    joint = torch.from_numpy(problem.joint)
    along = (joint - mean) @ basis.T

    def start_again() -> tuple[torch.Tensor, Embed]:
        values = torch.ones(len(basis), requires_grad=True)
        return values, lambda rows: joint[rows] + (along[rows] * (values - 1)) @ basis

    loss = cross_entropy(problem.judge)
    options = [replace(DEFAULTS, learning_rate=rate, seed=seed) for rate in RATES]
    values, notes = fit_chosen(start_again, loss, split.fit, split.held_out, options)
    found = joint[split.test] + (along[split.test] * (values - 1)) @ basis
    seconds = time.perf_counter() - start
    return Fitted(problem.scores(found), len(basis), seconds, notes=notes)


def ridge_to_texts(problem: Problem, split: Split, seed: int) -> Fitted:
    """W in closed form: unit embeddings to the text of their class, ‖XW − T‖² + α‖W − I‖²."""
    start = time.perf_counter()
    unit = _unit(problem.joint)
    texts = problem.judge.texts.numpy().astype(np.float64)

    def scores_of(alpha: float, train: np.ndarray, test: np.ndarray) -> FloatArray:
        x = unit[train]
        target = texts[problem.codes[train]] - x
        factor = cho_factor(x.T @ x + alpha * np.eye(x.shape[1]))
        w = cho_solve(factor, x.T @ target)
        return _unit(unit[test] + unit[test] @ w) @ texts.T

    alpha = _choose(list(np.geomspace(1e-3, 1e2, 11)), scores_of, problem, split, 1.0)
    scores = scores_of(alpha, split.train, split.test)
    n = unit.shape[1] ** 2
    return Fitted(scores, n, time.perf_counter() - start, notes={"alpha": float(alpha)})


def linear_probe(space: str) -> Callable[[Problem, Split, int], Fitted]:
    """Logistic regression on standardised `latent` or `joint` vectors; uses no text."""

    def run(problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        x = problem.latent if space == "latent" else _unit(problem.joint)
        n_classes = len(problem.classes)

        def scores_of(pull: float, train: np.ndarray, test: np.ndarray) -> FloatArray:
            mean, scale = x[train].mean(0), x[train].std(0) + 1e-6
            weights = logistic((x[train] - mean) / scale, problem.codes[train], n_classes, pull)
            inputs = np.concatenate([(x[test] - mean) / scale, np.ones((len(test), 1))], 1)
            return softmax(inputs @ weights)

        pull = _choose([1.0, 0.1, 0.01, 0.001], scores_of, problem, split, 0.1)
        scores = scores_of(pull, split.train, split.test)
        n = (x.shape[1] + 1) * n_classes
        return Fitted(scores, n, time.perf_counter() - start, notes={"pull": pull})

    return run


def logistic(x: FloatArray, codes: np.ndarray, n_classes: int, pull: float) -> FloatArray:
    """Weights [d + 1, class] that minimise cross-entropy + pull/2 ‖W‖² (the bias is free)."""
    inputs = torch.as_tensor(np.concatenate([x, np.ones((len(x), 1))], 1), dtype=torch.float64)
    target = torch.as_tensor(codes)
    weights = torch.zeros(inputs.shape[1], n_classes, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights], max_iter=100, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(inputs @ weights, target)
        value = value + 0.5 * pull * weights[:-1].square().sum()
        value.backward()
        return value

    optimiser.step(loss)  # type: ignore[arg-type]
    return weights.detach().numpy()


def _unit(x: FloatArray) -> FloatArray:
    x = np.asarray(x, np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
