"""The headings of the page, in order; figures say themselves which they belong to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A heading with the names of the tables that belong under it."""

    id: str
    title: str
    text: str
    tables: tuple[str, ...]


SECTIONS: tuple[Section, ...] = (
    Section(
        "residual",
        "ResiDual: did reweighting help?",
        "Every method on the same grouped folds; what is trained never sees the tested fold. The "
        "gain over the first row (zero-shot; without a text side the nearest class centroid) is "
        "paired, with a 95% interval that draws whole groups of recordings. "
        "Adapted methods have seen labelled clips: they are not zero-shot.",
        ("adapted", "adapted_splits", "adapted_against", "gains_components"),
    ),
    Section(
        "captions",
        "Captions: is the right one found, before and after?",
        "Every caption asks for its clip (t2a) and every clip for any of its captions (a2t), among "
        "those of the tested fold; gains were fitted to the captions of the other folds. The gain "
        "is paired, with a 95% interval that draws whole groups.",
        ("retrieval_adapted",),
    ),
    Section(
        "ablation",
        "Which parts matter",
        "The change of the answers when a part is removed. The direct method takes away only its "
        "own contribution to the latent, the exact one runs the encoder without it.",
        (
            "ablation_attention_exact",
            "ablation_attention_direct",
            "ablation_correlations",
            "ablation_block_correlations",
        ),
    ),
    Section(
        "heads",
        "What each head carries",
        "Every attention head in order of computation. Linear dimension counts principal "
        "components, TwoNN and MLE look at neighbours; their ratio L/N is large where the cloud "
        "of clips is curved.",
        ("stages", "blocks", "heads", "descriptions"),
    ),
    Section(
        "classes",
        "Which sounds move which heads",
        "",
        ("fisher",),
    ),
    Section(
        "alike",
        "Which heads are alike",
        "",
        (),
    ),
    Section(
        "attention",
        "Attention maps, and what pooling discards",
        "",
        ("attention_stages",),
    ),
    Section("training", "How it emerged in training", "", ("training",)),
)
