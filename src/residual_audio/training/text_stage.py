"""First stage: a small text tower learns the space of a sentence encoder from real captions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from residual_audio.files import read_json, write_json, write_text
from residual_audio.models.text_small import SmallText, SmallTextConfig, load_bpe, train_bpe
from residual_audio.models.weights import load_strict
from residual_audio.progress import Progress
from residual_audio.seals import is_sealed, prove_file, seal_files
from residual_audio.training.losses import cosine_distance, relational
from residual_audio.training.recipe import TextRecipe
from residual_audio.training.sentence import Vectors, embed_sentences, into_space, sentence_space
from residual_audio.training.training_loop import generator, train
from residual_audio.training.training_state import load_tensors, save_tensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Indices = npt.NDArray[np.int64]
N_HELD_OUT = 512
"""Texts of the corpus that the tower does not learn from, to see how well it generalises."""


class TextTask:
    """Cosine and relational distillation of sentence vectors."""

    def __init__(
        self,
        tower: SmallText,
        texts: list[str],
        targets: Vectors,
        recipe: TextRecipe,
        seed: int,
        needed: Iterable[str] = (),
    ) -> None:
        self.module = tower
        self.recipe = recipe
        self.seed = seed
        same = recipe.model_dump(mode="json", exclude={"optimisation": {"steps", "snapshots"}})
        self.identity: dict[str, Any] = {"text recipe": same, "seed": seed}
        self.look_every = max(1, recipe.optimisation.steps // 10)
        order = np.random.default_rng(seed).permutation(len(texts))
        held = min(N_HELD_OUT, len(texts) // 10)
        self.held, self.learned = order[:held], order[held:]
        wanted = set(needed)
        self.own = np.array([i for i in self.learned if texts[i] in wanted], dtype=np.int64)
        self.targets = torch.from_numpy(targets)
        self.ids = [encoded.ids for encoded in _encode(tower, texts)]

    def lr_scale(self, name: str) -> float:
        return 1.0

    def rows(self, step: int) -> list[int]:
        """This step's texts: the corpus is gone through in a new order each time."""
        size = min(self.recipe.optimisation.batch_size, len(self.learned))
        n_own = min(len(self.own), round(self.recipe.own_share * size))
        rows = self._turn(self.learned, size - n_own, step, 1) if n_own < size else []
        return rows + (self._turn(self.own, n_own, step, 2) if n_own else [])

    def _turn(self, members: Indices, size: int, step: int, stream: int) -> list[int]:
        per_epoch = max(1, len(members) // size)
        shuffle = generator(self.seed, stream, step // per_epoch)
        order = torch.randperm(len(members), generator=shuffle)
        start = step % per_epoch * size
        return [int(members[i]) for i in order[start : start + size]]

    def batch(self, rows: Iterable[int]) -> dict[str, Tensor]:
        ids = [torch.tensor(self.ids[i]) for i in rows]
        device = self.module.positions.device
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=0)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)
        return {"input_ids": padded.to(device), "attention_mask": mask.to(device)}

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        rows = self.rows(step)
        out = self.module.encode(**self.batch(rows)).float()
        target = self.targets[rows].to(out.device)
        cosine, relation = cosine_distance(out, target), relational(out, target)
        parts = {"cosine": float(cosine.detach()), "relational": float(relation.detach())}
        return cosine + self.recipe.relational * relation, parts

    @torch.inference_mode()
    def look(self, step: int) -> dict[str, object]:
        rows = [int(i) for i in self.held]
        out = torch.nn.functional.normalize(self.module.encode(**self.batch(rows)).float(), dim=-1)
        target = self.targets[rows].to(out.device)
        nearest = (out @ target.T).argmax(1) == torch.arange(len(rows), device=out.device)
        return {
            "held_out_cosine": float((out * target).sum(1).mean()),
            "held_out_matched": float(nearest.float().mean()),
            "n": len(rows),
        }

    def save_weights(self, folder: Path) -> None:
        save_tower(self.module, folder)


def _encode(tower: SmallText, texts: list[str]) -> list[Any]:
    tower.tokenizer.no_padding()
    try:
        return list(tower.tokenizer.encode_batch(texts))
    finally:
        tower.tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")


BESIDE_WEIGHTS = ("text.json", "tokenizer.json")


def save_tower(tower: SmallText, folder: Path) -> None:
    """Tokenizer, config and weights in one folder."""
    write_json(folder / "text.json", tower.config)
    write_text(folder / "tokenizer.json", tower.tokenizer.to_str())
    seal_files(folder / name for name in BESIDE_WEIGHTS if (folder / name).is_file())
    # last: with it the tower counts as finished
    save_tensors(folder / "text.safetensors", tower.state_dict())


def has_tower(folder: Path) -> bool:
    """True where a finished tower lies."""
    return (folder / "text.safetensors").is_file()


def load_tower(folder: Path) -> SmallText:
    for name in BESIDE_WEIGHTS:
        prove_file(folder / name)
    tower = SmallText.from_config(read_json(folder / "text.json"), folder)
    load_strict(tower, load_tensors(folder / "text.safetensors"), f"'{folder}'")
    return tower


def build_tower(recipe: TextRecipe, tokenizer: Tokenizer, seed: int) -> SmallText:
    """A tower with fresh weights."""
    config = SmallTextConfig(
        vocabulary=recipe.vocabulary,
        width=recipe.width,
        depth=recipe.depth,
        n_heads=recipe.n_heads,
        max_tokens=recipe.max_tokens,
        d_out=recipe.d_out,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SmallText(config, tokenizer)


def run_text_stage(
    recipe: TextRecipe,
    texts: list[str],
    needed: list[str],
    folder: Path,
    seed: int,
    device: torch.device,
    progress: Progress,
) -> SmallText:
    """Vocabulary, teacher vectors, distillation; the finished tower is kept in `folder`.

    `needed` are texts that are learned even where the recipe takes only a part of the corpus.
    """
    if has_tower(folder):
        return load_tower(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    if path.is_file():
        tokenizer = load_bpe(prove_file(path))
    else:
        tokenizer = train_bpe(texts, recipe.vocabulary)
        write_text(path, tokenizer.to_str())
    if not is_sealed(path):  # also of one whose process was killed before it came to that
        seal_files([path])
    tower = build_tower(recipe, tokenizer, seed)
    if recipe.encoder is None:  # learned together with the audio
        return tower
    space = sentence_space(recipe.encoder, texts, recipe.d_out, recipe.even, folder)
    if recipe.n_texts:
        texts = list(dict.fromkeys([*texts[:: max(1, len(texts) // recipe.n_texts)], *needed]))
    sentences = embed_sentences(recipe.encoder, texts, cache=folder, progress=progress)
    vectors = into_space(sentences, space)
    task = TextTask(tower, texts, vectors, recipe, seed, needed)
    progress.note(f"text tower: {sum(p.numel() for p in tower.parameters()):,} parameters")
    done = train(task, recipe.optimisation, folder, device, progress)
    if done == recipe.optimisation.steps:
        save_tower(tower, folder)
    return tower
