"""Whisper's encoder from its tensors, under the names of transformers or of OpenAI's own files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.models.vit_names import count_blocks, read_blocks
from residual_audio.models.weights import StateDict, get, load_strict


@dataclass(frozen=True)
class Names:
    """How a release calls the tensors of the encoder."""

    blocks: str
    """Before the number of a block."""
    qkv: tuple[str, str, str]
    block: Mapping[str, str]
    """Their name inside a block → ours."""
    other: Mapping[str, str]
    """Their name or prefix outside of blocks → ours."""


TRANSFORMERS = Names(
    "layers.",
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    {
        "self_attn_layer_norm": "norm1",
        "self_attn.out_proj": "proj",
        "final_layer_norm": "norm2",
        "fc1": "fc1",
        "fc2": "fc2",
    },
    {
        "conv1.": "stem.conv1.",
        "conv2.": "stem.conv2.",
        "embed_positions.weight": "positions",
        "layer_norm.": "norm.",
    },
)
OPENAI = Names(
    "blocks.",
    ("attn.query", "attn.key", "attn.value"),
    {"attn_ln": "norm1", "attn.out": "proj", "mlp_ln": "norm2", "mlp.0": "fc1", "mlp.2": "fc2"},
    {
        "conv1.": "stem.conv1.",
        "conv2.": "stem.conv2.",
        "positional_embedding": "positions",
        "ln_post.": "norm.",
    },
)


def read_encoder(
    tensors: StateDict, names: Names, n_heads: int, where: str, *, halve: bool = False
) -> ViT:
    """The encoder of the size that its tensors have; only the number of heads is not in them.

    `halve`: neighbouring positions are averaged before the final norm.
    """
    # Whisper's keys have no bias: it would shift all scores of a query alike.
    state = read_blocks(
        tensors, names.blocks, names.block, names.qkv, where, without_bias=names.qkv[1:2]
    )
    for theirs, ours in names.other.items():
        for key in [key for key in state if key.startswith(theirs)]:
            state[ours + key.removeprefix(theirs)] = state.pop(key)
    width, n_mels, _ = get(state, "stem.conv1.weight", where).shape
    encoder = ViT(
        ViTConfig(
            width=width,
            depth=count_blocks(state),
            n_heads=n_heads,
            hidden=get(state, "blocks.0.fc1.weight", where).shape[0],
            n_mels=n_mels,
            n_frames=2 * get(state, "positions", where).shape[0],
            norm_eps=1e-5,
            stem="conv",
            patch=(1, 1),
            stride=(1, 1),
            halve=halve,
        )
    )
    load_strict(encoder, state, where)
    return encoder
