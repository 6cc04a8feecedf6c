"""What a sentence encoder knows of single words, lent to the text tower while it learns.

A small tower has seen most words too seldom to know them: the embedding of "preceding" is nearly
the random one it began with, though a sentence encoder puts the word beside "prior" and "before".
Here every whole word of the tower's vocabulary has the encoder's vector beside its own embedding,
through one linear map that all words share. What the map learns from the words that are taught
reaches words that are not. In the end it is added to the embeddings, so the tower is as large as
before and needs no encoder.

Words of a caption are made strange at times: their own embedding is replaced by that of some other
entry, and only what the encoder knows of them is left. So is a word met that nobody taught.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from residual_audio.models.text_small import SmallText
from residual_audio.progress import SILENT, Progress
from residual_audio.training.sentence import embed_sentences

WORD_START = "\u0120"
"""How a byte-level vocabulary writes the space before a word."""
COMMON = (
    *("a", "an", "and", "as", "at", "be", "been", "but", "by", "can", "could", "for", "from"),
    *("gets", "had", "has", "have", "i", "in", "is", "it", "its", "of", "on", "one", "or"),
    *("some", "someone", "than", "that", "the", "them", "there", "these", "this", "those", "to"),
    *("was", "we", "when", "where", "which", "while", "with", "you"),
)
"""Words that stay themselves: they decide nothing, or, like "by", are met everywhere."""
JITTER = 0.2
"""How far from its place a strange word's vector is drawn, as a share of its length."""


def whole_words(tower: SmallText) -> dict[int, str]:
    """Entry of the vocabulary → the word, of those that are whole words."""
    vocabulary = tower.tokenizer.get_vocab()
    return {
        number: token[1:]
        for token, number in vocabulary.items()
        if re.fullmatch(f"{WORD_START}[a-z]{{2,}}", token)
    }


def word_vectors(
    tower: SmallText, encoder: str, cache: Path | None, progress: Progress = SILENT
) -> Tensor:
    """[entry, d] what the encoder has for each whole word, centred, of length 1; else 0."""
    words = whole_words(tower)
    numbers = sorted(words)
    vectors = torch.as_tensor(
        embed_sentences(encoder, [words[i] for i in numbers], cache, progress=progress)
    )
    found = torch.zeros(tower.settings.vocabulary, vectors.shape[1])
    found[numbers] = F.normalize(vectors - vectors.mean(0), dim=-1)
    return found


def deciding_entries(tower: SmallText, frames: Iterable[str]) -> Tensor:
    """[entry] True where a word of the frames may be made strange."""
    chosen = torch.zeros(tower.settings.vocabulary, dtype=torch.bool)
    words = {w for frame in frames for w in re.findall("[a-z]+", re.sub(r"\{\d\}", " ", frame))}
    for number, word in whole_words(tower).items():
        chosen[number] = word in words and word not in COMMON
    return chosen


class LexicalText(nn.Module):
    """A text tower with the encoder's words beside its own embeddings."""

    words: Tensor
    strange: Tensor

    def __init__(self, tower: SmallText, words: Tensor, strange: Tensor) -> None:
        super().__init__()
        self.tower = copy.deepcopy(tower).requires_grad_(True)
        self.shared = nn.Parameter(torch.zeros(words.shape[1], tower.settings.width))
        self.register_buffer("words", words, persistent=False)
        self.register_buffer("strange", strange, persistent=False)

    @property
    def positions(self) -> Tensor:
        return self.tower.positions

    def folded(self) -> SmallText:
        """The tower alone, with what was learned of words in its embeddings."""
        made = copy.deepcopy(self.tower)
        with torch.no_grad():
            made.tokens.weight += self.words @ self.shared
        return made.requires_grad_(False).eval()

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Texts → joint space."""
        return self.said(texts)

    def said(
        self,
        texts: Sequence[str],
        unknown: Tensor | None = None,
        draw: torch.Generator | None = None,
    ) -> Tensor:
        """Captions to learn from; `unknown` is how likely each deciding word of one is strange."""
        asked = self.tower.tokenize(texts)
        ids, mask = (asked[k].to(self.positions.device) for k in ("input_ids", "attention_mask"))
        own, known = self.tower.tokens(ids), self.words[ids]
        if unknown is not None:
            chosen = (torch.rand(ids.shape, generator=draw) < unknown[:, None]).to(ids.device)
            chosen = (chosen & self.strange[ids])[..., None]
            other = torch.randint(self.tower.settings.vocabulary, ids.shape, generator=draw)
            own = torch.where(chosen, self.tower.tokens(other.to(ids.device)).detach(), own)
            moved = torch.randn(known.shape, generator=draw).to(known.device)
            known = known + chosen * moved * (JITTER / known.shape[-1] ** 0.5)
        return self.tower.encode_states(own + known @ self.shared, mask)
