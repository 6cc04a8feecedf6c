"""Random clips with a direct path, made to the rules of the real one."""

from __future__ import annotations

import numpy as np
import torch

from residual_audio.direct.contributions import Captured, Contributions
from residual_audio.judge.answers import Judge
from residual_audio.models.joint import JointHead
from residual_audio.reweight.keep_in_place import Reference
from residual_audio.types import Site

SLOTS = {0: 4, 1: 1}
N_HEADS, D_HEAD, WIDTH = 2, 3, 6
SITES = tuple(
    Site(stage, 0, kind, *((N_HEADS, D_HEAD) if kind == "attention" else (0, 0)), WIDTH)
    for stage in (0, 1)
    for kind in ("attention", "mlp")
)


def two_stages(labels: np.ndarray, d: int, seed: int = 0) -> Captured:
    """Two stages, the first with four slots a head; one head of each attention knows the class."""
    rng = np.random.default_rng(seed)
    n = len(labels)

    def draw(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (scale * rng.normal(size=shape)).astype(np.float32)

    operators = {
        "direct/step/s0": draw(4, WIDTH, WIDTH, scale=0.5),
        "direct/step/s1": draw(1, WIDTH, d, scale=0.5),
        "direct/entry/s1": draw(WIDTH),
        "direct/final": draw(d),
    }
    arrays = {"direct/embedding": draw(n, d)}
    maps = {1: operators["direct/step/s1"]}
    maps[0] = operators["direct/step/s0"] @ maps[1][0]
    latent = arrays["direct/embedding"] + operators["direct/final"]
    for stage, slots in SLOTS.items():
        arrays[f"direct/weights/s{stage}"] = draw(n, slots) + 1

    def constant(stage: int, vector: np.ndarray) -> np.ndarray:
        return arrays[f"direct/weights/s{stage}"] @ (vector @ maps[stage])

    latent = latent + constant(1, operators["direct/entry/s1"])
    for site in SITES:
        if site.kind == "mlp":
            arrays[f"direct/{site}"] = draw(n, d)
            latent = latent + arrays[f"direct/{site}"]
            continue
        slots = SLOTS[site.stage]
        pools = draw(n, N_HEADS, slots, D_HEAD) + draw(N_HEADS, slots, D_HEAD)
        pools[:, 0, 0, 0] += labels
        w_out, b_out = draw(N_HEADS, D_HEAD, WIDTH, scale=0.5), draw(WIDTH)
        arrays[f"direct/{site}"] = pools.reshape(n, N_HEADS, -1)
        operators |= {f"w_out/{site}": w_out, f"b_out/{site}": b_out}
        latent = latent + np.einsum("nhsa,haw,swd->nd", pools, w_out, maps[site.stage])
        latent = latent + constant(site.stage, b_out)
    return Captured(SITES, arrays | {"embedding/latent": latent.astype(np.float32)}, operators)


def other_clips(head: JointHead, labels: np.ndarray, d: int) -> Reference:
    """Clips that a model gives five right answers about, every second of them to fit by."""
    other = Contributions(two_stages(labels, d, seed=0))
    with torch.no_grad():
        answers = head.from_latent(torch.from_numpy(np.asarray(other.latent)))
    source = torch.Generator().manual_seed(1)
    texts = torch.nn.functional.normalize(torch.randn(5, answers.shape[1], generator=source))
    positive = torch.nn.functional.one_hot((answers @ texts.T).argmax(1), 5).bool()
    rows = np.arange(len(labels))
    groups = [str(i) for i in rows]
    return Reference("other", other, Judge(texts, positive, 10.0), rows[::2], rows[1::2], groups)
