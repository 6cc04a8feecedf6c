"""F, G and H of each wording by itself, on pairs that settings may be chosen on.

    python benchmarks/frames.py --model bundled=nano --model words=FOLDER --root ESC-50 --out FILE

Pairs joined from recordings of folds 1 to 3: held-out class pairs of held-out sources. Every frame
is said of the same pairs under the same names, so frames can be compared.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import residual_audio as ra
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.data.wordings import frames_for, sentence
from residual_audio.metrics.compa import outcomes
from residual_audio.surface.model import Model


def pairs_named(root: Path, n_items: int) -> tuple[Dataset, list[list[str]]]:
    """The pairs, and what the sound that is first in the first clip of each is called, and the
    other."""
    pairs = load_dataset(
        "joined",
        root,
        of="esc50",
        folds=[1, 2, 3],
        n_items=n_items,
        seed=211,
        class_pairs="held-out",
        sources="held-out",
        wording="the {0} | {1}",
    )
    return pairs, [pair.captions[0].removeprefix("The ").split(" | ") for pair in pairs.pairs]


def measured(model: Model, root: Path, n_items: int, wordings: Sequence[str]) -> dict[str, object]:
    """Wording → frame → F, G, H, and how often all four comparisons are wrong."""
    pairs, names = pairs_named(root, n_items)
    clips = [clip for pair in pairs.pairs for clip in pair.clips[:2]]
    waves = [pairs.read(clip, model.sample_rate_hz) for clip in clips]
    heard = model.embed_audio(waves, sample_rate=model.sample_rate_hz)
    audio = heard.reshape(len(names), 2, -1)
    found: dict[str, object] = {}
    for wording in wordings:
        rows = {}
        for frame in frames_for("order", "", wording):
            said = [sentence(frame.format(*two)) for a, b in names for two in ((a, b), (b, a))]
            text = model.embed_text(said).reshape(len(names), 2, -1)
            right, wrong = (
                outcomes(np.einsum("itd,iad->ita", side, audio)) for side in (text, text[:, ::-1])
            )
            rows[frame] = {name: round(float(right[name].mean()), 4) for name in "fgh"}
            rows[frame] |= {"all_wrong": round(float(wrong["h"].mean()), 4), "n": len(text)}
        found[wording] = rows
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", required=True, help="label=name or folder")
    parser.add_argument("--root", type=Path, required=True, help="ESC-50 with folds 1 to 3")
    parser.add_argument("--wording", action="append", help="choosing and held-out if not given")
    parser.add_argument("--items", type=int, default=120)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    found = {}
    for given in args.model:
        label, _, name = given.partition("=")
        model = ra.load_model(name)
        wordings = args.wording or ["choosing", "held-out"]
        found[label] = {"weights": model.sha256} | measured(model, args.root, args.items, wordings)
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
