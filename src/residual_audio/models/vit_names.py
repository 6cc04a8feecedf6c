"""From the tensor names of a release to ours: blocks of a ViT, q, k and v fused."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from residual_audio.errors import ModelError
from residual_audio.models.weights import StateDict


def read_blocks(
    state: StateDict,
    prefix: str,
    names: Mapping[str, str],
    qkv: tuple[str, str, str],
    where: str,
    without_bias: Collection[str] = (),
) -> StateDict:
    """`<prefix><i>.<their name>` → `blocks.<i>.<our name>`; other tensors stay as they are.

    Query, key and value become one `qkv`; those in `without_bias` have none, that is, 0.
    """
    found: StateDict = {}
    split: dict[tuple[str, str], dict[str, Tensor]] = defaultdict(dict)
    for key, value in state.items():
        match = re.fullmatch(re.escape(prefix) + r"(\d+)\.(.+)\.(weight|bias)", key)
        index, name, kind = match.groups() if match else ("", "", "")
        if name in qkv:
            split[index, kind][name] = value
        else:
            found[f"blocks.{index}.{names[name]}.{kind}" if name in names else key] = value
    for index in {index for index, _ in split}:
        for kind in ("weight", "bias"):
            parts = split[index, kind]
            for name in qkv if kind == "bias" else ():
                if name in without_bias:
                    parts[name] = torch.zeros(len(next(iter(split[index, "weight"].values()))))
            missing = [f"{prefix}{index}.{name}.{kind}" for name in qkv if name not in parts]
            if missing:
                raise ModelError(f"{where} does not hold what it should; missing: {missing}")
            found[f"blocks.{index}.qkv.{kind}"] = torch.cat([parts[name] for name in qkv])
    return found


def count_blocks(state: StateDict) -> int:
    """How many blocks there are tensors of."""
    return len({key.split(".")[1] for key in state if key.startswith("blocks.")})
