"""The text side of M2D-CLAP: BERT in the checkpoint (2025), or GTE in its own folder (2024)."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from residual_audio.errors import ModelError
from residual_audio.models.checkpoint_files import read_model_json
from residual_audio.models.hf import read_folder_weights
from residual_audio.models.joint import MLP, Identity, JointHead, Linear
from residual_audio.models.text import (
    MissingText,
    TokenizerSpec,
    TransformersText,
    read_bert_config,
)
from residual_audio.models.weights import StateDict, below, get, load_strict

_ENCODERS = {"A": ("thenlper/gte-base", "mean"), "B": ("bert-base-uncased", "first")}
"""Letter in the folder's name → repository and how its last states become one vector."""
_FOLDER = "text_encoder"


def load_text(
    kind: str,
    included: StateDict,
    text_proj: StateDict,
    folder: Path,
    where: str,
    *,
    given: str | None = None,
    n_heads: int | None = None,
) -> nn.Module:
    """The text tower of a checkpoint in `folder`; one that says what is missing if it is not there.

    A tower that is not in the checkpoint (`included`) is looked for in `given`, in the folder
    `text_encoder` beside the checkpoint, and in the Hugging Face cache.
    """
    if kind not in _ENCODERS:
        return MissingText(
            f"{where} was trained with NV-Embed-v2 as its text encoder, which is not supported: "
            "it embeds audio only"
        )
    repository, pool = _ENCODERS[kind]
    place = f"the text encoder of {where}"
    # The attribute that holds BERT is named `text_encoder` upstream, that of GTE `model`.
    tensors = below(included, "text_encoder.") or below(included, "model.")
    source = folder
    if tensors:
        config = read_bert_config(tensors, place, n_heads)
    else:
        found = Path(given).expanduser() if given is not None else _find(folder, repository)
        if found is None:
            return MissingText(
                f"{where} has no text encoder inside, and '{repository}' is neither in the folder "
                f"'{folder / _FOLDER}' nor in the Hugging Face cache: put its config.json, "
                "model.safetensors and tokenizer.json into that folder, or run "
                f"`hf download {repository}` where there is network and copy the cache"
            )
        source, place = found, f"the text encoder '{found}'"
        config = read_model_json(found / "config.json")
        if config.get("model_type") != "bert":
            raise ModelError(f"{place} is a '{config.get('model_type')}' model; expected bert")
        config = {key: value for key, value in config.items() if not key.startswith("_")}
        tensors, _ = read_folder_weights(found)
        tensors = below(tensors, "bert.") or tensors
    head = _head(text_proj, int(config["hidden_size"]), where)
    # vocab.txt alone does beside BERT's own config.json.
    files = ("tokenizer.json",) if source == folder else ("tokenizer.json", "vocab.txt")
    here = any((source / name).is_file() for name in files)
    tokenizer = TokenizerSpec(
        str(source) if here else repository, max_length=512, padding="longest"
    )
    text = TransformersText("bert-no-pooler", config, pool, head, tokenizer)
    load_strict(text.backbone, tensors, place, ignore=("position_ids", "pooler.", "cls."))
    return text


def _find(folder: Path, repository: str) -> Path | None:
    beside = folder / _FOLDER
    if beside.is_dir():
        return beside
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(repository, local_files_only=True))  # nosec B615
    except (LocalEntryNotFoundError, OSError):
        return None
    # A tokenizer alone may be cached under the same name.
    weights = ("model.safetensors", "pytorch_model.bin")
    return found if any((found / name).is_file() for name in weights) else None


def _head(tensors: StateDict, width: int, where: str) -> JointHead:
    place = f"the text projection of {where}"
    head: JointHead
    if not tensors:
        return Identity(width)
    if "weight" in tensors:
        head = Linear(*reversed(tensors["weight"].shape))
        state = {f"linear.{key}": value for key, value in tensors.items()}
    else:
        first, second = get(tensors, "0.weight", place), get(tensors, "2.weight", place)
        head = MLP(first.shape[1], first.shape[0], second.shape[0])
        state = name_mlp(tensors)
    load_strict(head, state, place)
    return head


def name_mlp(tensors: StateDict) -> StateDict:
    """Linear, ReLU, Linear of a `Sequential` → the names of our `MLP`."""
    names = {"0": "linear1", "2": "linear2"}
    return {
        ".".join([names.get(key.split(".")[0], key.split(".")[0]), *key.split(".")[1:]]): value
        for key, value in tensors.items()
    }
