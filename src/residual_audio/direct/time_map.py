"""What each moment of a clip contributes to its score with a text, from the exact direct path.

score = h·t / |h| with h = head(latent). The latent is an exact sum over tokens of what every head,
MLP and bias wrote there (norm statistics frozen); the joint head is replaced by its tangent at the
clip, and |h| is held. So  score = Σ_tokens part·g + rest  with  g = ∂(h·t)/∂latent / |h|,  and
`rest` holds what has no time: the last norm's bias, and what the tangent leaves (for a ReLU head
the biases of the head and nothing else: there the tangent is exact).

A contribution is read where a token is when it is written, after blocks have moved what was heard:
it says where the model has put the evidence, which need not be where the sound is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.direct.token_path import TokenPath, Weights
from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Features
from residual_audio.models.token_times import step_centres, time_steps
from residual_audio.types import FloatArray, Site

EMBEDDING, BIASES = "embedding", "biases"


@dataclass(frozen=True)
class TimeMap:
    """Contributions of one clip to its score with one text; `total`'s sum + `rest` is the score."""

    text: str
    score: float
    rest: float
    """The part of the score that has no time."""
    duration_s: float
    parts: Mapping[str, FloatArray]
    """Unit (heads, MLPs, `embedding`, `s<stage>.biases`) → [time step of its stage]."""
    stage_of: Mapping[str, int]
    mel: FloatArray
    """[frame, mel] what the model heard."""

    @property
    def stages(self) -> dict[int, FloatArray]:
        """Stage → [time step of the stage], everything written there."""
        found: dict[int, FloatArray] = {}
        for name, values in self.parts.items():
            stage = self.stage_of[name]
            found[stage] = found[stage] + values if stage in found else values
        return found

    @property
    def total(self) -> FloatArray:
        """[finest time step]: a coarser step is spread evenly over the finer ones inside it."""
        stages = list(self.stages.values())
        n = max(len(values) for values in stages)
        return np.sum([spread_evenly(values, n) for values in stages], axis=0)

    @property
    def seconds(self) -> FloatArray:
        """The middle of each step of `total`."""
        return self.seconds_of(len(self.total))

    def seconds_of(self, n_steps: int) -> FloatArray:
        return step_centres(n_steps, self.duration_s).numpy()

    def between(self, start_s: float, end_s: float, part: str | None = None) -> float:
        """The sum over a time range; a step that lies partly in it counts in part."""
        values = self.total if part is None else self.parts[part]
        edges = np.linspace(0, self.duration_s, len(values) + 1)
        inside = np.minimum(edges[1:], end_s) - np.maximum(edges[:-1], start_s)
        return float(values @ (np.clip(inside, 0, None) / np.diff(edges)))


def spread_evenly(values: FloatArray, n: int) -> FloatArray:
    """As `n` steps over the same time with the same sum."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.diff(np.interp(_edges(n), _edges(len(values)), sums))


@cache  # a run spreads thousands of rows over the same few grids
def _edges(n: int) -> FloatArray:
    """Where `n` steps between 0 and 1 begin, and the end."""
    edges = np.linspace(0, 1, n + 1)
    edges.flags.writeable = False
    return edges


class _Written:
    """A tap that keeps all that is written to the stream, and the scale of every norm."""

    points = frozenset({"stream", "raw", "out", "scale"})

    def __init__(self, first: Site) -> None:
        self._first = first
        self.values: dict[tuple[Site, str], Tensor] = {}
        self.scales: dict[int, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if not isinstance(where, Site):
            self.scales[where] = value
        elif point == "stream":
            if where == self._first:
                self.values[where, point] = value
        elif point == "raw" or where.kind == "mlp":
            self.values[where, point] = value


def time_maps(
    model: AudioTextModel, features: Features, texts: Mapping[str, FloatArray], duration_s: float
) -> dict[str, TimeMap]:
    """Maps of one clip (features of a batch of one) for several texts (text → unit vector)."""
    encoder = model.encoder
    path, tap = TokenPath(encoder), _Written(encoder.sites[0])
    with torch.no_grad():
        latent = model.encode(features, tap=tap).latent
        weights = path.weights(tap.scales)
    heard = features[0][:, 0] if isinstance(features, tuple) else features
    mel = heard[0].float().cpu().numpy()
    found = {}
    for text, vector in texts.items():
        score, toward = tangent(model, latent, torch.as_tensor(vector).to(latent))
        parts, stage_of = {}, {}
        with torch.no_grad():
            for stage, name, tokens in _readings(model, path, tap, weights, toward):
                parts[name] = _over_time(model, stage, tokens)
                stage_of[name] = stage
        timed = sum(float(values.sum()) for values in parts.values())
        found[text] = TimeMap(text, score, score - timed, duration_s, parts, stage_of, mel)
    return found


def tangent(model: AudioTextModel, latent: Tensor, text: Tensor) -> tuple[float, Tensor]:
    """The score of one clip [1, latent] and its slope [latent], the length of h held."""
    with torch.enable_grad():
        point = latent.detach().requires_grad_(True)
        joint = model.head.from_latent(point)
        score = (joint @ text / joint.detach().norm()).sum()
        (slope,) = torch.autograd.grad(score, point)
    cosine = F.cosine_similarity(joint.detach(), text[None]).item()
    return cosine, slope[0] * (1.0 / float(text.norm()))


def _readings(
    model: AudioTextModel, path: TokenPath, tap: _Written, weights: Weights, toward: Tensor
) -> list[tuple[int, str, Tensor]]:
    """(stage, unit, [token]) of everything that is written to the stream."""
    found: list[tuple[int, str, Tensor]] = []
    biases: dict[int, Tensor] = {}
    for (site, point), value in tap.values.items():
        along = path.along(site.stage, toward)  # slot width
        if point == "raw":
            weight, bias = model.encoder.output_projection(site)
            heads = weight.unflatten(0, (site.n_heads, site.d_head))
            mine = torch.einsum("hdw,sw->shd", heads, along)
            tokens = path.read(site.stage, value, weights, mine)[0]  # token head
            found += [(site.stage, str(h), tokens[:, h.head]) for h in site.heads]
            biases[site.stage] = biases.get(site.stage, torch.zeros_like(bias)) + bias
        else:
            tokens = path.read(site.stage, value[:, :, None], weights, along[:, None])[0, :, 0]
            name = EMBEDDING if point == "stream" else str(site)
            found.append((site.stage, name, tokens))
    for stage, bias in biases.items():
        entry = path.entry[stage]
        constant = bias if entry is None else bias + entry
        n = next(v.shape[1] for (site, _), v in tap.values.items() if site.stage == stage)
        along = path.along(stage, toward)
        value = constant.expand(1, n, 1, -1)
        tokens = path.read(stage, value, weights, along[:, None])[0, :, 0]
        found.append((stage, f"s{stage}.{BIASES}", tokens))
    return found


def _over_time(model: AudioTextModel, stage: int, tokens: Tensor) -> FloatArray:
    """[token] → [time step], summed over frequency."""
    step, n_steps = time_steps(model.encoder, stage, len(tokens))
    timed = step.to(tokens.device) >= 0
    if bool((tokens[~timed] != 0).any()):
        raise ModelError(
            f"'{model.name}' reads its latent from tokens that have no time (CLS): there is no map "
            "of its score over time"
        )
    found = torch.zeros(n_steps, dtype=torch.float64)
    found.index_add_(0, step[timed.cpu()], tokens[timed].double().cpu())
    return found.numpy()
