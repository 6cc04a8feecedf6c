"""Cheap numbers of heads that might predict which of them matter."""

from __future__ import annotations

import numpy as np

from residual_audio.ablation.interventions import Interventions
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_arrays import joint_of
from residual_audio.metrics.estimators import of_spectrum
from residual_audio.metrics.separability import class_codes, fisher
from residual_audio.metrics.spectra import eigenspectrum
from residual_audio.types import FloatArray, Head


def head_metrics(given: Interventions) -> dict[str, FloatArray]:
    """Cheap metrics of every head over the clips of the study, in order of computation.

    All but `fisher` are label-free. `text_alignment`: share of the contribution's variance, carried
    to the joint space, that lies in the span of the texts.
    """
    store, out = given.store, dict[str, list[FloatArray]]()
    labels = given.labels
    codes = class_codes(labels)[1] if labels is not None and len(set(labels)) > 1 else None
    for site in store.attention_sites:
        heads = np.asarray(store.heads(site))[given.rows].transpose(1, 0, 2)  # head clip d_head
        spectra = eigenspectrum(heads)
        found = of_spectrum(spectra)
        found["variance"] = spectra.sum(-1)
        found["norm"] = np.linalg.norm(heads, axis=-1).mean(-1)
        if codes is not None:
            found["fisher"] = fisher(heads, codes)
        for name, values in found.items():
            out.setdefault(name, []).append(np.asarray(values, np.float64))
    joined = {name: np.concatenate(values) for name, values in out.items()}
    if "direct" in store.kinds:
        joined |= _direct_metrics(given)
    return joined


def _direct_metrics(given: Interventions) -> dict[str, FloatArray]:
    parts = given.contributions
    step = joint_of(given.store).derivative(parts.latent.mean(0)[None])  # latent joint
    texts = given.judge.texts.numpy().astype(np.float64)
    _, s, v = np.linalg.svd(texts - texts.mean(0), full_matrices=False)
    span = v[s > 1e-6 * s[0]]
    found: dict[str, list[float]] = {"direct_norm": [], "direct_spread": [], "text_alignment": []}
    for site in given.store.attention_sites:
        for head in site.heads:
            own = parts.head(head).astype(np.float64)
            centred = own - own.mean(0)
            joint = _carried(parts, head, step) if _is_thin(parts, head) else centred @ step
            whole = float((joint**2).sum())
            inside = float(((joint @ span.T) ** 2).sum())
            found["direct_norm"].append(float(np.linalg.norm(own, axis=1).mean()))
            found["direct_spread"].append(float(np.sqrt((centred**2).sum(1).mean())))
            found["text_alignment"].append(inside / whole if whole > 0 else 0.0)
    return {name: np.array(values) for name, values in found.items()}


def _is_thin(parts: Contributions, head: Head) -> bool:
    """Whether a head's pools hold fewer values than its contribution."""
    return parts.pools(head).shape[1] < parts.latent.shape[1]


def _carried(parts: Contributions, head: Head, step: FloatArray) -> FloatArray:
    """The contribution about its mean, in the joint space: pools times (operator times step)."""
    pools = parts.pools(head).astype(np.float64)
    return (pools - pools.mean(0)) @ (parts.operator(head).astype(np.float64) @ step)
