"""A model proves itself before it is used, text tower included."""

from __future__ import annotations

import pytest
import torch
from tiny_model import tiny_model
from torch import Tensor, nn

from residual_audio.errors import ModelError
from residual_audio.models.proof import prove
from residual_audio.models.text import MissingText


class Collapsed(nn.Module):
    def forward(self, texts: list[str]) -> Tensor:
        return torch.ones(len(texts), 12)


class NotFinite(nn.Module):
    def forward(self, texts: list[str]) -> Tensor:
        return torch.full((len(texts), 12), torch.nan)


class TooSmall(nn.Module):
    def forward(self, texts: list[str]) -> Tensor:
        return torch.zeros(3)[torch.tensor([5])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (Collapsed(), "same vector for 'a dog barks'"),
        (NotFinite(), "not finite for a text"),
        (TooSmall(), "does not run on a text"),
    ],
)
def test_a_broken_text_tower_is_caught(text: nn.Module, expected: str) -> None:
    model = tiny_model()
    prove(model)
    model.text = text
    with pytest.raises(ModelError, match=expected):
        prove(model)


def test_a_missing_text_tower_does_not_keep_sounds_from_being_heard() -> None:
    model = tiny_model()
    model.text = MissingText("put its files there")
    prove(model)
    with pytest.raises(ModelError, match="put its files there"):
        model.embed_text(["a dog"])
