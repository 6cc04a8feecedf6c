"""What heads respond to: the clips at both ends of their leading components, and words for them.

Words come through the joint space. A head's direct contribution to the latent, carried through the
joint head's derivative (its mean over clips: the joint head is not linear), is a cloud in the space
where texts live; its leading directions are described by a few dictionary entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residual_audio.analysis.source import Source, clip_ids, each_site
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_arrays import joint_of
from residual_audio.engine.jobs import on_cores
from residual_audio.errors import InputError
from residual_audio.metrics.pursuit import (
    centre_dictionary,
    coherence,
    matching_pursuit,
    random_directions,
)
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows
from residual_audio.types import Head

N_ENTRIES = 5
N_DRAWS = 100


def top_clips(
    store: Source, n_components: int = 2, n_clips: int = 5, progress: Progress = SILENT
) -> Table:
    """The clips furthest along + and − each leading component of every head."""
    ids, labels = clip_ids(store), store.clips["label"]
    rows = []
    progress.step("analyse: clips", len(store.attention_sites), "sites")
    for part in each_site(store):
        progress.advance()
        spectra = on_cores(fit_spectrum, list(part.x))
        for name, cloud, spectrum in zip(part.names, part.x, spectra, strict=True):
            scores = (cloud.astype(np.float64) - spectrum.mean) @ spectrum.basis[:n_components].T
            scale = np.sqrt(np.maximum(spectrum.eigenvalues[:n_components], 1e-300))
            for c in range(scores.shape[1]):
                order = np.argsort(scores[:, c])
                for sign, chosen in (("+", order[::-1][:n_clips]), ("-", order[:n_clips])):
                    for rank, clip in enumerate(chosen, start=1):
                        rows.append(
                            {
                                "head_id": name,
                                "component": c + 1,
                                "sign": sign,
                                "rank": rank,
                                "clip": ids[clip],
                                "label": labels[clip] or "",
                                "score": float(scores[clip, c] / scale[c]),
                            }
                        )
    note = "score: standard deviations along the component; the sign of a component is arbitrary"
    return from_rows("top_clips", rows, "Clips at the ends of each leading component.", (note,))


def joint_derivative(store: Source, n_clips: int = 32, seed: int = 0) -> tuple[Array, float]:
    """Mean derivative of the joint head over sampled clips [latent, d], and how linear it is (R²).

    R² is the share of the joint embedding's variance over all clips that the one matrix reproduces.
    """
    to_joint = joint_of(store)
    latent = np.asarray(store.latent(), dtype=np.float64)
    chosen = np.random.default_rng(seed).permutation(len(latent))[:n_clips]
    derivative = to_joint.derivative(latent[chosen])
    joint = to_joint(latent)
    joint = joint - joint.mean(axis=0)
    rest = joint - (latent - latent.mean(axis=0)) @ derivative
    return derivative, float(1 - (rest**2).sum() / (joint**2).sum())


@dataclass(frozen=True)
class Dictionary:
    """Texts to describe directions with, and how well random directions are described by them."""

    texts: Sequence[str]
    rows: Array
    """[entry, d], centred, unit length."""
    fits: Array
    """[draw], cosine of each random direction with its description."""
    likeness: Array
    """[draw], mean cosine between the entries nearest to each random direction."""

    def row(self, direction: Array) -> dict[str, object]:
        """Words for a direction, and how far they stand out from those of random ones."""
        found = matching_pursuit(direction, self.rows, N_ENTRIES)
        alike = coherence(direction, self.rows, N_ENTRIES)
        return {
            "texts": "; ".join(self.texts[i] for i in found.entries),
            "fit": found.fit,
            "fit_z": float((found.fit - self.fits.mean()) / self.fits.std()),
            "coherence": alike,
            "coherence_z": float((alike - self.likeness.mean()) / self.likeness.std()),
        }

    def notes(self) -> tuple[str, ...]:
        return (
            f"{len(self.texts)} dictionary entries; {N_ENTRIES} at most are chosen",
            f"fit: cosine of the direction with its description; random directions reach "
            f"{self.fits.mean():.3f} ± {self.fits.std():.3f}, fit_z counts from there",
            f"coherence: mean cosine between the {N_ENTRIES} entries nearest to the direction; "
            f"random directions reach {self.likeness.mean():.3f} ± {self.likeness.std():.3f}",
        )


def read_dictionary(store: Source, seed: int = 0) -> Dictionary:
    """The texts of a store, with what chance reaches on them."""
    if not store.has_text:
        raise InputError("the model has no text side: no words to describe heads with")
    texts, embeddings = store.texts()
    if embeddings is None or len(texts) < 2 * N_ENTRIES:
        raise InputError("the store has no text dictionary to describe heads with")
    rows = centre_dictionary(embeddings)
    draws = random_directions(rows, N_DRAWS, np.random.default_rng(seed))
    fits = np.array([matching_pursuit(v, rows, N_ENTRIES).fit for v in draws])
    return Dictionary(texts, rows, fits, np.array([coherence(v, rows, N_ENTRIES) for v in draws]))


def describe_heads(
    store: Source, *, n_components: int = 2, seed: int = 0, progress: Progress = SILENT
) -> Table:
    """Words for both directions of the leading components of every head's direct contribution."""
    dictionary = read_dictionary(store, seed)
    if not any(name.startswith("direct/") for name in store.names):
        raise InputError("the direct path was not captured: extract with --capture …,direct")
    if store.joint is None:
        raise InputError("the joint head does not read the latent: heads cannot be put in words")
    derivative, linearity = joint_derivative(store, seed=seed)
    parts = Contributions(store, keep=False)

    def one(head: Head) -> list[dict[str, object]]:
        contribution = np.asarray(parts.head(head), dtype=np.float64)
        spectrum = fit_spectrum(contribution @ derivative)
        total = spectrum.eigenvalues.sum()
        rows: list[dict[str, object]] = []
        for c in range(n_components if total > 0 else 0):
            share = float(spectrum.eigenvalues[c] / total)
            for sign, direction in (("+", spectrum.basis[c]), ("-", -spectrum.basis[c])):
                place = {"head_id": str(head), "component": c + 1, "sign": sign, "share": share}
                rows.append(place | dictionary.row(direction))
        progress.advance()
        return rows

    heads = [head for site in store.attention_sites for head in site.heads]
    progress.step("analyse: words", len(heads), "heads")
    rows = [row for found in on_cores(one, heads) for row in found]
    bent = f"the joint head is replaced by its mean derivative (R² {linearity:.3f} over clips)"
    notes = (*dictionary.notes(), bent)
    return from_rows("descriptions", rows, "Words for what heads contribute.", notes)
