"""What the page needs to move gains: latents, the joint head, class texts, and each unit's part.

latent(λ) = latent + Σ_j (λ_j − 1) a_j φ_j. A head is kept by its components, as many as leave less
than `TOLERANCE` of a latent's length; the attention of a block by its whole centred contribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from residual_audio.atlas.class_answers import Answers
from residual_audio.atlas.components import ComponentsOfRun, HeadComponents
from residual_audio.atlas.packed import floats, rows_of_integers
from residual_audio.direct.joint_arrays import Joint, joint_of
from residual_audio.judge.of_store import rows_of
from residual_audio.store import Store

Rows = npt.NDArray[np.integer]
TOLERANCE = 5e-5
"""Root mean square of what a head's kept components leave out, as a share of a latent's length."""
MOST_CLIPS = 500
"""A larger run moves this many of its clips, spread over the classes, and says so."""

PARAMETERS = {
    "identity": (),
    "linear": ("linear.weight", "linear.bias"),
    "mlp": ("linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"),
    "gelu-mlp": ("linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"),
    "unit-mlp": ("linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"),
    "norm-linear": ("layer_norm.weight", "layer_norm.bias", "linear.weight"),
    "residual": ("linear1.weight", "linear2.weight", "layer_norm.weight", "layer_norm.bias"),
}
"""What the joint head of each kind is made of; the page has its own forward of each."""


def moved_rows(store: Store) -> Rows:
    """The clips that the page recomputes."""
    found = rows_of(store, None, MOST_CLIPS)
    return np.arange(len(store)) if found is None else found


def base_piece(store: Store, answers: Answers, rows: Rows) -> dict[str, object]:
    """Latents, labels, texts and the joint head."""
    joint = joint_of(store)
    latent = np.asarray(store.latent(), np.float32)[rows]
    unit = np.asarray(store.embedding(), np.float64)[rows]
    mean = unit.mean(0)
    _, _, axes = np.linalg.svd(unit - mean, full_matrices=False)
    return {
        "rows": rows.tolist(),
        "n_of": len(store),
        "codes": answers.codes[rows].tolist(),
        "classes": list(answers.classes),
        "texts": floats(answers.texts),  # fold class joint
        "folds": answers.folds[rows].tolist(),
        "scale": answers.scale,
        "latent": floats(latent),
        "joint": joint_piece(joint),
        "plane": {"mean": floats(mean), "axes": floats(axes[:2])},
    }


def joint_piece(joint: Joint) -> dict[str, object]:
    """The joint head as the page computes it."""
    return {
        "kind": joint.kind,
        "parameters": {n: floats(joint.parameter(n)) for n in _parameters(joint)},
        "eps": dict(joint.norm_eps),
        "gelu": bool(joint.config.get("gelu", False)),
    }


def _parameters(joint: Joint) -> tuple[str, ...]:
    first = ("first.weight", "first.bias") if joint.config.get("d_first") else ()
    return first + PARAMETERS[joint.kind]


def kept(one: HeadComponents, length: float) -> int:
    """Components of a head that the page holds."""
    values = one.spectrum.eigenvalues
    left = np.sqrt(np.maximum(values.sum() - np.cumsum(values), 0.0))
    return min(len(values), int((left > TOLERANCE * length).sum()) + 1)


def unit_pieces(components: ComponentsOfRun, rows: Rows) -> Iterator[tuple[str, dict[str, object]]]:
    """Every head and the attention of every block, by name."""
    store, parts = components.store, components.contributions
    length = float(np.sqrt((np.asarray(store.latent(), np.float64) ** 2).sum(1).mean()))
    for one in components.all():
        k = kept(one, length)
        yield (
            str(one.head),
            {
                "along": rows_of_integers(one.coordinates[rows, :k].T),  # component clip
                "axes": rows_of_integers(one.spectrum.basis[:k]),
                "mean": rows_of_integers(one.spectrum.mean[None]),
                "variances": [float(f"{v:.7g}") for v in one.spectrum.eigenvalues[:k]],
            },
        )
    for site in store.attention_sites:
        whole = np.asarray(parts.site(site), np.float64)
        mean = whole.mean(0)
        yield (
            str(site),
            {
                "whole": rows_of_integers((whole - mean)[rows]),
                "mean": rows_of_integers(mean[None]),
            },
        )


def slider_units(store: Store) -> dict[str, Sequence[str]]:
    """Stages and the attention sites that a gain on each acts at."""
    stages = sorted({site.stage for site in store.attention_sites})
    return {
        f"s{stage}": [str(site) for site in store.attention_sites if site.stage == stage]
        for stage in stages
    }
