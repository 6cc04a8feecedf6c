"""What a stage that moves single words has moved: nothing else, to the bit.

    python benchmarks/moved_words.py --before FOLDER --after nano --root DATA --out FILE

Compares the weights of two models, and the vectors of all class prompts and of some captions and
titles under both. DATA is as for `residual-audio train nano-roles`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional as F

from residual_audio.models import native
from residual_audio.models.families import NANO
from residual_audio.models.text_small import SmallText
from residual_audio.training.corpus import corpus
from residual_audio.training.recipe import load_recipe
from residual_audio.training.training_clips import class_names, open_datasets

BATCH = 256
N_CAPTIONS = 6000


def texts_of(root: Path) -> dict[str, list[str]]:
    """Class prompts in every template; captions and titles, evenly drawn from those that the text
    side learned from."""
    recipe = load_recipe("nano-roles")
    names = class_names(open_datasets(recipe.audio, root))
    captions = corpus(root, recipe.text.corpus, (), (), 0, recipe.seed)
    return {
        "class prompts": [t.replace("{}", c) for c in names for t in recipe.audio.templates],
        "captions": captions[:: max(1, len(captions) // N_CAPTIONS)],
    }


@torch.inference_mode()
def compared(before: SmallText, after: SmallText, texts: Sequence[str], moved: set[int]) -> object:
    """How many texts have a moved word, and how many of either kind kept their vector."""
    order = sorted(texts, key=len)
    counts, far = Counter[str](), 0.0
    for start in range(0, len(order), BATCH):
        some = order[start : start + BATCH]
        then, now = before(some), after(some)
        away = 1 - F.cosine_similarity(then, now)
        for i, read in enumerate(before.tokenizer.encode_batch(some)):
            kind = "with" if moved & set(read.ids) else "without"
            counts[f"{kind} a moved word"] += 1
            counts[f"{kind} a moved word, same to the bit"] += int(torch.equal(then[i], now[i]))
            far += float(away[i]) * (kind == "with")
    n_with = counts["with a moved word"]
    return counts | {"mean 1 - cosine, with a moved word": round(far / n_with, 5) if n_with else 0}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--after", default="nano")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    models = [native.load(NANO if str(f) == "nano" else Path(f)) for f in (args.before, args.after)]
    then, now = models
    assert isinstance(then.text, SmallText)
    assert isinstance(now.text, SmallText)
    rows = (then.text.tokens.weight != now.text.tokens.weight).any(1).nonzero().flatten().tolist()
    entry = {i: token for token, i in then.text.tokenizer.get_vocab().items()}
    parts = {"encoder": 0, "head": 0, "text": 0}
    for name in parts:
        a, b = (getattr(model, name).state_dict() for model in models)
        parts[name] = sum(not torch.equal(a[key], b[key]) for key in a)
    found = {
        "weights": [model.sha256 for model in models],
        "tensors_that_differ": parts,
        "words_that_differ": [entry[i].removeprefix("\u0120") for i in rows],
        **{
            kind: compared(then.text, now.text, texts, set(rows))
            for kind, texts in texts_of(args.root).items()
        },
    }
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
