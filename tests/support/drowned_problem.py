"""A problem whose answer is known: a head that knows the class, drowned by a louder one."""

from __future__ import annotations

import numpy as np
import torch

from residual_audio.adaptation.problem import Problem
from residual_audio.direct.contributions import Contributions
from residual_audio.judge.answers import Judge
from residual_audio.models.joint import Linear
from residual_audio.types import Clip, Head, Site

N, D, CLASSES = 96, 16, 4


class Source:
    """Heads that know the class, drowned by one that is loud and knows nothing."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.codes = np.arange(N) % CLASSES
        self.sites = (Site(0, 0, "attention", 3, 6, 18), Site(0, 0, "mlp", 0, 0, 18))
        self.axes = np.linalg.qr(rng.normal(size=(D, D)))[0]
        pools = rng.normal(size=(N, 3, 6)) * 0.3
        pools[:, 0, :4] += np.eye(CLASSES)[self.codes]  # axis c of head 0 is class c
        pools[:, 1] = rng.normal(size=(N, 6)) * 6.0  # loud noise in the same directions
        self.pools = pools.astype(np.float32)
        self.operators = {
            Head(0, 0, 0): self.axes[:6],
            Head(0, 0, 1): self.axes[:6],
            Head(0, 0, 2): self.axes[6:12],
        }
        self.mlp = (rng.normal(size=(N, D)) * 0.1 + 0.5).astype(np.float32)

    def array(self, name: str) -> np.ndarray:
        found = {
            "direct/s0.b0.attention": self.pools,
            "direct/s0.b0.mlp": self.mlp,
            "direct/embedding": np.zeros((N, D), np.float32),
            "direct/weights/s0": np.ones((N, 1), np.float32),
            "embedding/latent": self.latent(),
        }
        return found[name]

    def operator(self, name: str) -> np.ndarray:
        """The stream of the one stage holds the heads side by side."""
        found = {
            "w_out/s0.b0.attention": np.eye(18, dtype=np.float32).reshape(3, 6, 18),
            "b_out/s0.b0.attention": np.zeros(18, np.float32),
            "direct/step/s0": np.concatenate(list(self.operators.values()))[None],
            "direct/final": np.zeros(D, np.float32),
        }
        return found[name].astype(np.float32)

    def latent(self) -> np.ndarray:
        total = self.mlp.astype(np.float64)
        for head, operator in self.operators.items():
            total = total + self.pools[:, head.head] @ operator
        return total.astype(np.float32)


def make_problem(seed: int = 0, **changes) -> Problem:
    source = Source(seed)
    head = Linear(D, D).requires_grad_(False)
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(D))
        head.linear.bias.zero_()
    latent = source.latent()
    classes = tuple(f"c{i}" for i in range(CLASSES))
    clips = tuple(
        Clip(f"clip{i}", label=classes[source.codes[i]], group=f"g{i // 2}-{source.codes[i]}")
        for i in range(N)
    )
    judge = Judge.for_labels([c.label for c in clips], classes, source.axes[:CLASSES], 10.0)
    given = {
        "clips": clips,
        "classes": classes,
        "judge": judge,
        "head": head,
        "latent": latent,
        "joint": latent.copy(),
        "contributions": Contributions(source),
        "sites": source.sites,
        "about": {"model": {"name": "toy", "sha256": "a" * 64}, "dataset": {"name": "toy"}},
    }
    return Problem(**(given | changes))
