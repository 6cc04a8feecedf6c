"""CompA-Order: the same sounds in another order; 400 items."""

from __future__ import annotations

from pathlib import Path

from residual_audio.data.base import Card, Dataset
from residual_audio.data.compositions import load_compositions

CARD = Card(
    name="compa-order",
    title="CompA-Order: compositional reasoning about the order of sounds",
    task="pairs",
    licence="see the project page (audio from AudioSet)",
    citation=(
        "S. Ghosh et al. CompA: Addressing the Gap in Compositional Reasoning in Audio-Language "
        "Models. ICLR 2024."
    ),
    url="https://sreyan88.github.io/compa_iclr/",
    layout="CompA_order_benchmark.csv\nCompA_order_files/*.wav",
    download="Get the benchmark from the project page and give the folder that holds the table.",
    counts={"items": 400},
    group="the item",
)


def load(root: Path) -> Dataset:
    return load_compositions(
        root, CARD, ["CompA_order_benchmark.csv"], ["CompA_order_files", "compa_order_files"]
    )
