"""Is a checkpoint what it says, and healthy? A few measures that a loader cannot make: it opens
whatever fits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from residual_audio.audio.frontend import LogMel
from residual_audio.capture.embedded_texts import built_in_dictionary
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.embeddings.embedder import EmbeddingSettings
from residual_audio.embeddings.of_dataset import embed_clips
from residual_audio.embeddings.prompts import find_prompts
from residual_audio.evaluation.zero_shot import evaluate_zero_shot
from residual_audio.metrics.cloud_shape import mean_cosine, modality_gap
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.htsat import HTSAT
from residual_audio.models.releases import RELEASES, SHA256
from residual_audio.models.text import NoTextError
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table

Verdict = Literal["ok", "look", "fails"]

N_CLIPS, N_TEXTS, N_ZERO_SHOT = 8, 64, 82
COLLAPSED = 0.98
"""Mean cosine between different texts (or sounds) from which a tower tells nothing apart. Healthy
CLAP models have 0.1 to 0.6."""
COLLAPSED_AUDIO_ONLY = 0.9999
"""Encoders that were not trained for cosines share a large mean vector."""
SAME = 1e-4
"""Largest difference in a unit vector that rounding explains."""
FAR = 4.0
"""Standard deviations from the mean that a normalisation expects, over all features."""
NEAR, NARROW, WIDE = 1.5, 0.5, 2.0
"""The same, and the deviation itself, for sounds as the weights know them: a logarithm of another
base, or amplitude for power, lies outside without lying far."""
START = 1 / 0.07
"""The temperature that contrastive training starts from."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    value: str
    wanted: str
    verdict: Verdict


@dataclass(frozen=True)
class ModelCheck:
    """All findings about a model."""

    model: str
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        return all(finding.verdict != "fails" for finding in self.findings)

    @property
    def verdict(self) -> str:
        failed = [finding.check for finding in self.findings if finding.verdict == "fails"]
        if failed:
            return f"{self.model} is not healthy: {', '.join(failed)}"
        look = [finding.check for finding in self.findings if finding.verdict == "look"]
        return f"{self.model} is healthy" + (f"; look at: {', '.join(look)}" if look else "")

    def table(self) -> Table:
        names = ("check", "value", "wanted", "verdict")
        columns = {name: np.array([getattr(f, name) for f in self.findings]) for name in names}
        return Table("model_check", columns, caption=f"{self.model}: what it is, and how it is")


def check_model(
    model: AudioTextModel, *, sounds: bool = False, progress: Progress = SILENT
) -> ModelCheck:
    """Look at a loaded model; with `sounds`, also whether it tells synthetic sounds apart.

    >>> from residual_audio.models.registry import load_model
    >>> check_model(load_model("nano")).healthy
    True
    """
    data = load_dataset("synthetic", n_clips=N_CLIPS, seed=7)
    once = EmbeddingSettings(batch_size=8, cache=False)
    audio = np.asarray(embed_clips(model, data, once, progress=progress).vectors)
    findings = [_sum(model), _weights(model), *_front_end(model)]
    findings += [_collapse("sounds", audio, model.text is not None), _batch(model, data, audio)]
    texts = _texts(model)
    if isinstance(texts, Finding):
        findings.append(texts)
    else:
        findings += [_collapse("texts", texts, True), _padding(model)]
        findings.append(_gap(audio, texts))
        if sounds:
            findings.append(_zero_shot(model, progress))
    if model.text is not None:
        findings.append(_temperature(model.logit_scale))
    return ModelCheck(model.name, tuple(findings))


def _sum(model: AudioTextModel) -> Finding:
    known = SHA256.get(model.sha256)
    file = Path(model.name.partition(":")[2]).name
    if known:
        return Finding("sha256", f"{model.sha256[:12]}…", f"{known} of OpenAI's Whisper", "ok")
    if model.family == "whisper" and file in SHA256.values():
        return Finding("sha256", f"{model.sha256[:12]}…", f"that of OpenAI's {file}", "fails")
    named = any(file in (release.file, release.name) for release in RELEASES)
    why = "no source states the sum of this release" if named else "no known release has it"
    return Finding("sha256", f"{model.sha256[:12]}…", why, "look" if named else "ok")


def _weights(model: AudioTextModel) -> Finding:
    bad = [
        name
        for name, value in model.named_parameters()
        if not bool(torch.isfinite(value).all()) or (value.ndim > 1 and not bool(value.any()))
    ]
    said = f"{bad[0]} and {len(bad) - 1} more" if len(bad) > 1 else "".join(bad) or "all"
    return Finding("weights", said, "finite, no matrix of zeros", "fails" if bad else "ok")


def _front_end(model: AudioTextModel) -> list[Finding]:
    """The filters in the file against the settings, and features against what the first
    normalisation expects."""
    found = []
    filters = getattr(model.front_end, "filters", None)
    if filters is not None:
        off = float((LogMel(model.spec).filters - filters.cpu()).abs().max())
        largest = float(filters.abs().max())
        found.append(
            Finding(
                "filters", f"differ by {off / largest:.1e}", "< 1e-3", _ok(off < 1e-3 * largest)
            )
        )
    normed = _normalised(model)
    mean, std = float(normed.mean()), float(normed.std())
    said = f"mean {mean:.2f}, deviation {std:.2f}"
    verdict = _ok(abs(mean) < FAR and 1 / FAR**2 < std < FAR)
    wanted = f"|mean| and deviation < {FAR:g}"
    if isinstance(model.encoder, HTSAT):  # others have no normalisation to ask
        wanted = f"|mean| < {NEAR:g}, deviation {NARROW:g} to {WIDE:g}"
        if verdict == "ok" and not (abs(mean) < NEAR and NARROW < std < WIDE):
            verdict = "look"
    found.append(Finding("features", said, wanted, verdict))
    return found


@torch.inference_mode()
def _normalised(model: AudioTextModel) -> torch.Tensor:
    """Features of synthetic sounds as the encoder's first normalisation leaves them."""
    data = load_dataset("synthetic", n_clips=N_CLIPS, seed=8)
    waves = [data.read(clip, model.sample_rate_hz) for clip in data.clips]
    parts = [model.features(torch.from_numpy(model.windows(w)).to(model.device)) for w in waves]
    values = torch.cat([p[0][:, 0] if isinstance(p, tuple) else p for p in parts]).float().cpu()
    encoder = model.encoder
    if isinstance(encoder, HTSAT):
        norm = encoder.mel_norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        return (values - norm.running_mean.cpu()) / norm.running_var.cpu().sqrt()
    return values


def _collapse(what: str, vectors: np.ndarray, joint: bool) -> Finding:
    cosine = mean_cosine(vectors)
    most = COLLAPSED if joint else COLLAPSED_AUDIO_ONLY
    return Finding(
        f"different {what}", f"mean cosine {cosine:.4f}", f"< {most}", _ok(cosine < most)
    )


def _batch(model: AudioTextModel, data: Dataset, together: np.ndarray) -> Finding:
    some = replace(data, clips=data.clips[:4])
    alone = embed_clips(model, some, EmbeddingSettings(batch_size=1, cache=False)).vectors
    off = float(np.abs(np.asarray(alone) - together[:4]).max())
    return Finding("batch", f"moves a sound by {off:.1e}", f"< {SAME:g}", _ok(off < SAME))


def _texts(model: AudioTextModel) -> np.ndarray | Finding:
    if model.text is None:
        return Finding("texts", "none", "audio-only: nothing to compare with", "ok")
    words = built_in_dictionary()
    try:
        return model.embed_text(words[:: max(1, len(words) // N_TEXTS)])
    except NoTextError as error:
        return Finding("texts", "no tokenizer", str(error), "look")


def _padding(model: AudioTextModel) -> Finding:
    """A text alone, and beside one that makes it be padded."""
    words = built_in_dictionary()
    alone = model.embed_text(words[:1])
    padded = model.embed_text([words[0], " and ".join(words[:8])])[:1]
    off = float(np.abs(alone - padded).max())
    return Finding("padding", f"moves a text by {off:.1e}", f"< {SAME:g}", _ok(off < SAME))


def _gap(audio: np.ndarray, text: np.ndarray) -> Finding:
    gap = modality_gap(audio, text)
    said = f"{gap.l2:.2f} apart, {gap.angle_deg:.0f}°"
    return Finding("modality gap", said, "< 120°", "ok" if gap.angle_deg < 120 else "look")


def _temperature(scale: float) -> Finding:
    said = f"logit scale {scale:.2f}"
    if not math.isfinite(scale) or not 1 <= scale <= 1000:
        return Finding("temperature", said, "1 to 1000", "fails")
    untouched = abs(scale - START) < 1e-3 or scale == 1
    wanted = "learned: this is where training starts" if untouched else "1 to 1000"
    return Finding("temperature", said, wanted, "look" if untouched else "ok")


def _zero_shot(model: AudioTextModel, progress: Progress) -> Finding:
    data = load_dataset("synthetic", n_clips=N_ZERO_SHOT, seed=9)
    how = EmbeddingSettings(cache=False)
    result = evaluate_zero_shot(
        model, data, find_prompts("dataset", data.template), n_resamples=500, embedding=how,
        progress=progress,
    )  # fmt: skip
    top = next(score for score in result.scores if score.name == "top1")
    said = f"{top.value:.3f} ({top.low:.3f} to {top.high:.3f}, n {top.n})"
    chance = 1 / len(data.classes)
    return Finding("synthetic sounds", said, f"above chance, {chance:.3f}", _ok(top.low > chance))


def _ok(good: bool) -> Verdict:
    return "ok" if good else "fails"
