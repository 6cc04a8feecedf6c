"""CLIP's byte-pair vocabulary, as OpenAI and open_clip publish it."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from residual_audio.errors import ModelError

FILE = "bpe_simple_vocab_16e6.txt.gz"
N_MERGES = 48_894
"""Of the merges in the file: 49,408 tokens less 512 bytes and two marks."""
START, END = "<|startoftext|>", "<|endoftext|>"
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def find_vocabulary(folder: Path) -> Path | None:
    """The file in the folder, or in an installed open_clip."""
    places = [folder]
    installed = find_spec("open_clip")
    if installed is not None and installed.origin is not None:
        places.append(Path(installed.origin).parent)
    return next((place / FILE for place in places if (place / FILE).is_file()), None)


def read_vocabulary(path: Path) -> Any:
    """A fast tokenizer of transformers with these merges."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    try:
        lines = gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")
    except (OSError, EOFError, ValueError) as error:
        raise ModelError(f"'{path}' is not a vocabulary of CLIP: {error}") from error
    pairs = [line.split() for line in lines[1 : 1 + N_MERGES]]
    if len(pairs) != N_MERGES or any(len(pair) != 2 for pair in pairs):
        raise ModelError(f"'{path}' is not a vocabulary of CLIP: it has other merges")
    merges = [(left, right) for left, right in pairs]
    bytes_ = _byte_characters()
    tokens = [*bytes_, *(c + "</w>" for c in bytes_), *("".join(m) for m in merges), START, END]
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(START, ids[START]), (END, ids[END])]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=START, eos_token=END)


def _byte_characters() -> list[str]:
    """The 256 bytes as characters that can be seen, in the order of the vocabulary: printable ones
    as themselves, then the others from U+0100 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in seen] + [chr(256 + i) for i in range(256 - len(seen))]
