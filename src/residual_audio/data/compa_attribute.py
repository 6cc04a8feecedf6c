"""CompA-Attribute: the same sounds with their attributes swapped."""

from __future__ import annotations

from pathlib import Path

from residual_audio.data.base import Card, Dataset
from residual_audio.data.compositions import load_compositions

CARD = Card(
    name="compa-attribute",
    title="CompA-Attribute: compositional reasoning about the attributes of sounds",
    task="pairs",
    licence="see the project page (audio from AudioSet and synthesised)",
    citation=(
        "S. Ghosh et al. CompA: Addressing the Gap in Compositional Reasoning in Audio-Language "
        "Models. ICLR 2024."
    ),
    url="https://sreyan88.github.io/compa_iclr/",
    layout="Compa-Attribute.csv (local names in pair_file.1, reversed_pair_file.1)\n"
    "CompA_attribute_files/*.wav",
    download="Get the benchmark from the project page and give the folder that holds the table.",
    group="the item",
)


def load(root: Path) -> Dataset:
    return load_compositions(
        root,
        CARD,
        ["Compa-Attribute.csv", "CompA-Attribute.csv", "CompA_attribute_benchmark.csv"],
        ["CompA_attribute_files", "compa_attribute_files"],
    )
