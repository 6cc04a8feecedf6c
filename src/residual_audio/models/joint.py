"""Projection heads: from an encoder's output to the joint audio–text space."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from residual_audio.errors import ModelError
from residual_audio.models.block import Block
from residual_audio.models.encoder import Encoded, Tap
from residual_audio.models.linear import linear
from residual_audio.types import Site


class JointHead(nn.Module):
    """A head that is a function of the latent; one that needs more overrides `forward`."""

    kind: str
    config: dict[str, Any]
    reads_latent = True
    """False where the joint embedding is not a function of the pooled latent."""

    def from_latent(self, latent: Tensor) -> Tensor:
        """[clip, latent] → [clip, joint], not normalised."""
        raise ModelError(f"the '{self.kind}' head does not read the pooled latent")

    @property
    def first_product(self) -> nn.Linear | None:
        """The product that the latent goes through before anything else, where there is one: what
        is linear in the latent can be taken through it once and for all."""
        return None

    def after_product(self, product: Tensor) -> Tensor:
        """[clip, out of the first product] → [clip, joint]."""
        raise ModelError(f"the '{self.kind}' head does not begin with a product")

    def forward(self, encoded: Encoded) -> Tensor:
        return self.from_latent(encoded.latent)


class Identity(JointHead):
    """Audio-only encoders: the latent is the embedding."""

    kind = "identity"

    def __init__(self, d_in: int) -> None:
        super().__init__()
        self.config = {"d_in": d_in}

    def from_latent(self, latent: Tensor) -> Tensor:
        return latent


class Linear(JointHead):
    """W x + b."""

    kind = "linear"

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.config = {"d_in": d_in, "d_out": d_out}
        self.linear = nn.Linear(d_in, d_out)

    def from_latent(self, latent: Tensor) -> Tensor:
        return self.linear(latent)


class MLP(JointHead):
    """W₂ relu(W₁ x + b₁) + b₂: LAION, Hugging Face, M2D-CLAP 2024."""

    kind = "mlp"

    def __init__(self, d_in: int, d_hidden: int, d_out: int) -> None:
        super().__init__()
        self.config = {"d_in": d_in, "d_hidden": d_hidden, "d_out": d_out}
        self.linear1 = nn.Linear(d_in, d_hidden)
        self.linear2 = nn.Linear(d_hidden, d_out)

    @property
    def first_product(self) -> nn.Linear:
        return self.linear1

    def after_product(self, product: Tensor) -> Tensor:
        return linear(self.linear2, F.relu(product))

    def from_latent(self, latent: Tensor) -> Tensor:
        return self.after_product(self.linear1(latent))


class GELUMLP(JointHead):
    """W₂ gelu(W₁ x + b₁) + b₂: open_clip, unless its config says ReLU."""

    kind = "gelu-mlp"

    def __init__(self, d_in: int, d_hidden: int, d_out: int) -> None:
        super().__init__()
        self.config = {"d_in": d_in, "d_hidden": d_hidden, "d_out": d_out}
        self.linear1 = nn.Linear(d_in, d_hidden)
        self.linear2 = nn.Linear(d_hidden, d_out)

    @property
    def first_product(self) -> nn.Linear:
        return self.linear1

    def after_product(self, product: Tensor) -> Tensor:
        return linear(self.linear2, F.gelu(product))

    def from_latent(self, latent: Tensor) -> Tensor:
        return self.after_product(self.linear1(latent))


class UnitMLP(JointHead):
    """The latent, through a linear map where `d_first` is its width, at unit length; then two
    layers: open_clip's `pre_norm` and `training_head`."""

    kind = "unit-mlp"

    def __init__(
        self, d_in: int, d_hidden: int, d_out: int, *, gelu: bool, d_first: int = 0
    ) -> None:
        super().__init__()
        self.config = {
            "d_in": d_in,
            "d_hidden": d_hidden,
            "d_out": d_out,
            "gelu": gelu,
            "d_first": d_first,
        }
        self.gelu = gelu
        self.first = nn.Linear(d_in, d_first) if d_first else None
        self.linear1 = nn.Linear(d_first or d_in, d_hidden)
        self.linear2 = nn.Linear(d_hidden, d_out)

    def from_latent(self, latent: Tensor) -> Tensor:
        x = latent if self.first is None else self.first(latent)
        hidden = self.linear1(F.normalize(x, dim=-1))
        return self.linear2(F.gelu(hidden) if self.gelu else F.relu(hidden))


class NormLinear(JointHead):
    """W LayerNorm(x): PE-Audio."""

    kind = "norm-linear"

    def __init__(self, d_in: int, d_out: int, norm_eps: float = 1e-6) -> None:
        super().__init__()
        self.config = {"d_in": d_in, "d_out": d_out, "norm_eps": norm_eps}
        self.layer_norm = nn.LayerNorm(d_in, eps=norm_eps)
        self.linear = nn.Linear(d_in, d_out, bias=False)

    def from_latent(self, latent: Tensor) -> Tensor:
        return self.linear(self.layer_norm(latent))


class ResidualMLP(JointHead):
    """e = W₁ x; LayerNorm(e + W₂ gelu(e)): Microsoft CLAP."""

    kind = "residual"

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.config = {"d_in": d_in, "d_out": d_out}
        self.linear1 = nn.Linear(d_in, d_out, bias=False)
        self.linear2 = nn.Linear(d_out, d_out, bias=False)
        self.layer_norm = nn.LayerNorm(d_out)

    @property
    def first_product(self) -> nn.Linear:
        return self.linear1

    def after_product(self, product: Tensor) -> Tensor:
        return self.layer_norm(product + self.linear2(F.gelu(product)))

    def from_latent(self, latent: Tensor) -> Tensor:
        return self.after_product(self.linear1(latent))


class Codebook(nn.Module):
    """MGA-CLAP: frames or words vote for the codes of one shared codebook by sparsemax."""

    def __init__(self, n_codes: int, d: int) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.zeros(n_codes, d))

    def forward(self, queries: Tensor, mask: Tensor | None = None) -> Tensor:
        """[n, item, d] (and which items count) → [n, d]."""
        scores = queries @ self.codes.T / self.codes.shape[1] ** 0.5  # n item code
        if mask is not None:
            scores = scores * mask[..., None]  # masked items score 0, as upstream, not −∞
        votes = (scores / 1000.0).amax(1)
        return sparsemax(votes) @ self.codes


def sparsemax(x: Tensor) -> Tensor:
    """Euclidean projection of each row onto the simplex (Martins & Astudillo 2016)."""
    top = x.sort(dim=-1, descending=True).values
    rank = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    excess = top.cumsum(-1) - 1
    support = (rank * top > excess).sum(-1, keepdim=True)
    threshold = excess.gather(-1, support - 1) / support
    return (x - threshold).clamp(min=0)


def item_projection(d_in: int, d_out: int) -> nn.Sequential:
    """MGA-CLAP's frame and word projection: LayerNorm, Linear, GELU, LayerNorm, Linear."""
    return nn.Sequential(
        nn.LayerNorm(d_in),
        nn.Linear(d_in, d_out),
        nn.GELU(),
        nn.LayerNorm(d_out),
        nn.Linear(d_out, d_out),
    )


class FrameCodebook(JointHead):
    """MGA-CLAP's audio side: value tokens → frames → codebook."""

    kind = "frame-codebook"
    reads_latent = False

    def __init__(self, d_in: int, d_out: int, n_codes: int, fold: int) -> None:
        super().__init__()
        self.config = {"d_in": d_in, "d_out": d_out, "n_codes": n_codes, "fold": fold}
        self.fold = fold
        self.proj = item_projection(d_in, d_out)
        self.codebook = Codebook(n_codes, d_out)

    def frames(self, encoded: Encoded) -> Tensor:
        """Final value tokens averaged over frequency, in order of time: [clip, frame, latent]."""
        if encoded.values is None:
            raise ModelError("the codebook head needs an encoder with a value path")
        clip, token, width = encoded.values.shape
        side = int(token**0.5)
        grid = encoded.values.view(clip, self.fold, side // self.fold, side, width)
        return grid.mean(2).flatten(1, 2)

    def forward(self, encoded: Encoded) -> Tensor:
        return self.codebook(self.proj(self.frames(encoded)))


class Semantic(JointHead):
    """M2D-CLAP 2025: a learned token reads all patch tokens through a few one-headed blocks."""

    kind = "semantic"
    reads_latent = False

    def __init__(self, d_in: int, hidden: int, depth: int, norm_eps: float = 1e-5) -> None:
        super().__init__()
        self.config = {"d_in": d_in, "hidden": hidden, "depth": depth, "norm_eps": norm_eps}
        self.token = nn.Parameter(torch.zeros(1, 1, d_in))
        self.blocks = nn.ModuleList(Block(d_in, 1, hidden, norm_eps) for _ in range(depth))
        self.norm = nn.LayerNorm(d_in, eps=norm_eps)
        self._sites = [
            (Site(0, i, "attention", 1, d_in, d_in), Site(0, i, "mlp", 0, 0, d_in))
            for i in range(depth)
        ]

    def read(self, patches: Tensor, tap: Tap | None = None) -> Tensor:
        """Patch tokens [clip, token, latent] → [clip, joint]; the token is the first one."""
        x = torch.cat([self.token.expand(len(patches), -1, -1), patches], 1)
        for block, (attention, mlp) in zip(self.blocks, self._sites, strict=True):
            x = block(x, attention, mlp, tap, {})
        return self.norm(x[:, 0])

    def forward(self, encoded: Encoded) -> Tensor:
        return self.read(encoded.tokens)


HEADS: dict[str, type[JointHead]] = {
    head.kind: head
    for head in (
        Identity, Linear, MLP, GELUMLP, UnitMLP, NormLinear, ResidualMLP, FrameCodebook, Semantic,
    )
}  # fmt: skip
