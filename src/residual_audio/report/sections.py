"""What the page shows, in which order, and what each figure means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A heading with the figures (name, caption) and tables that belong under it."""

    id: str
    title: str
    text: str
    figures: tuple[tuple[str, str], ...]
    tables: tuple[str, ...]


SECTIONS: tuple[Section, ...] = (
    Section(
        "heads",
        "What each head carries",
        "Every attention head in order of computation. Linear dimension counts principal "
        "components, TwoNN and MLE look at neighbours; L/N compares the two.",
        (),
        ("stages", "blocks", "heads"),
    ),
)
