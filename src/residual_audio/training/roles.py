"""A part in a sentence, learned as one vector, given to words that no sentence taught.

The tower stays as it is. Where a caption to learn from has a word that plays a known part
(`data/word_roles.py`), the part's vector stands in the place of the word's embedding, so what is
learned is the part and not the word. In the end the words that were never said get the vector of
theirs. Every text without one of them keeps its vector to the bit.

Which part a verb plays, a sentence encoder tells: a ridge regression on its vectors of words known
to say earlier or later, none of them a word that is never said. A verb it is not sure of is left
alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from residual_audio.data.word_roles import ROLES, UNSAID
from residual_audio.models.text_small import SmallText
from residual_audio.training.lexicon import whole_words

EARLIER = (
    *("before", "prior", "first", "beginning", "begins", "began", "starts", "starting", "started"),
    *("announces", "announcing", "introducing", "leading", "leads", "causing", "causes", "created"),
    *("launched", "produced", "generated", "activated", "released", "ignited", "raised"),
    "prepared",
)
LATER = (
    *("after", "afterwards", "then", "later", "finally", "last", "ending", "ends", "ended"),
    *("followed", "follows", "following", "trailing", "trails", "replaced", "finished", "stopped"),
    *("muted", "broken", "overtaken", "echoed"),
)
RIDGE = 1.0
SURE = 0.2
"""Of a reading in which known words are 1 and −1."""


def sides(tower: SmallText, words: Tensor, asked: Sequence[str]) -> dict[str, float]:
    """Word → from 1 (earlier) to −1 (later), read from the encoder's vectors [entry, d]."""
    number = {word: i for i, word in whole_words(tower).items()}
    known = [(number[w], y) for y, ws in ((1.0, EARLIER), (-1.0, LATER)) for w in ws if w in number]
    x = words[[i for i, _ in known]].double()
    middle = x.mean(0)
    x = x - middle
    y = torch.tensor([y for _, y in known], dtype=torch.float64)
    kernel = x @ x.T + RIDGE * torch.eye(len(x), dtype=torch.float64)
    weights = x.T @ torch.linalg.solve(kernel, y)
    return {w: float((words[number[w]].double() - middle) @ weights) for w in asked if w in number}


def roles_of_unsaid(tower: SmallText, words: Tensor) -> dict[str, str]:
    """Word that is never said → its part, where the encoder is sure of it."""
    found = dict.fromkeys(UNSAID["pointer"], "pointer")
    for form, (leads, trails) in {
        "passive": ("led by", "trailed by"),
        "active": ("leads", "trails"),
    }.items():
        for word, side in sides(tower, words, UNSAID[form]).items():
            if abs(side) >= SURE:
                found[word] = leads if side > 0 else trails
    return found


class RoleText(nn.Module):
    """A text tower that learns nothing but the vectors of parts in a sentence."""

    taught: Tensor
    given: Tensor

    def __init__(self, tower: SmallText, unsaid: Mapping[str, str]) -> None:
        super().__init__()
        self.tower = copy.deepcopy(tower).requires_grad_(False)
        number = {word: i for i, word in whole_words(tower).items()}
        names = list(ROLES)
        taught, given = (torch.full((tower.settings.vocabulary,), -1) for _ in range(2))
        for role, name in enumerate(names):
            for word in ROLES[name]:
                if word in number:
                    taught[number[word]] = role
        for word, name in unsaid.items():
            if word in number:
                given[number[word]] = names.index(name)
        weight = self.tower.tokens.weight.detach()
        means = [
            weight[taught == role].mean(0) if (taught == role).any() else weight.mean(0)
            for role in range(len(names))
        ]
        self.roles = nn.Parameter(torch.stack(means))
        self.register_buffer("taught", taught, persistent=False)
        self.register_buffer("given", given, persistent=False)

    @property
    def positions(self) -> Tensor:
        return self.tower.positions

    def moved(self) -> Tensor:
        """[entry] True for words whose embedding will be another."""
        return self.given >= 0

    def folded(self) -> SmallText:
        """The tower with the vectors of their parts in the place of words that were not said."""
        made = copy.deepcopy(self.tower)
        chosen = self.moved().nonzero().flatten()
        with torch.no_grad():
            made.tokens.weight[chosen] = self._in_part(chosen, self.given)
        return made.eval()

    def _in_part(self, ids: Tensor, parts: Tensor) -> Tensor:
        part = parts[ids]
        return torch.where((part >= 0)[..., None], self.roles[part], self.tower.tokens(ids))

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Texts → joint space, as the finished tower will have them."""
        return self._encoded(texts, self.given)

    def said(
        self,
        texts: Sequence[str],
        unknown: Tensor | None = None,
        draw: torch.Generator | None = None,
    ) -> Tensor:
        """Captions to learn from: their words stand for the parts they play."""
        return self._encoded(texts, self.taught)

    def _encoded(self, texts: Sequence[str], parts: Tensor) -> Tensor:
        asked = self.tower.tokenize(texts)
        ids, mask = (asked[k].to(self.positions.device) for k in ("input_ids", "attention_mask"))
        return self.tower.encode_states(self._in_part(ids, parts), mask)
