"""A model in another layout, with the card and the record that every export carries."""

from __future__ import annotations

from pathlib import Path

from residual_audio import provenance
from residual_audio.files import write_json
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.layouts import write_model
from residual_audio.models.model_card import CARD, RECORD, CardFacts, beside, write_card
from residual_audio.models.model_names import base_of, licence_of


def convert_model(model: AudioTextModel, out: Path, layout: str) -> None:
    """Write the weights as they are; `out` is a folder, or for `laion` a file."""
    name, sha256 = model.name, model.sha256
    write_model(model, out, layout)
    record = {
        "converted": {"layout": layout},
        "from": {"name": Path(name).name, "sha256": sha256},
        "written_by": provenance.collect(),
    }
    write_json(beside(out, RECORD), provenance.plain(record))
    facts = CardFacts(
        name=out.name,
        base=base_of(name),
        layout=layout,
        change=f"{base_of(name)} in another layout, its weights unchanged.",
        licence=licence_of(name),
        has_text=model.text is not None,
    )
    write_card(facts, beside(out, CARD))
