"""What a table or a note says about a clip, in whatever columns it says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from residual_audio.data.audio_files import nfc, readable
from residual_audio.errors import DatasetError
from residual_audio.files import harmless

_FOLD_MAX = 2**31


@dataclass(frozen=True)
class Columns:
    """Names of the columns (or JSON fields) that are used."""

    label: str | None = None
    caption: str | None = None
    fold: str | None = None
    group: str | None = None

    def check(self, there: Mapping[str, object] | list[str], where: str) -> None:
        """Refuse a name that is not there."""
        for what, name in vars(self).items():
            if name is not None and name not in there:
                raise DatasetError(
                    f"{where} has no column '{name}' for the {what}; it has: {', '.join(there)}"
                )


def one_text(value: object) -> str | None:
    """A label or a group as text."""
    if value is None or isinstance(value, list | dict) or value != value:  # NaN: pandas has none
        return None
    text = nfc(harmless(str(value))).strip()
    return text or None


def label_of(value: object) -> str | None:
    text = one_text(value)
    return None if text is None else readable(text)


def texts_of(value: object) -> tuple[str, ...]:
    """Captions: one text or a list of them."""
    found = (one_text(text) for text in (value if isinstance(value, list) else [value]))
    return tuple(text for text in found if text)


def fold_of(value: Any, where: str) -> int | None:
    if value is None:
        return None
    try:
        found = int(value)
        if (isinstance(value, str) or found == value) and abs(found) < _FOLD_MAX:
            return found
    except (TypeError, ValueError, OverflowError):
        pass
    raise DatasetError(f"{where}: the fold '{harmless(str(value))}' is not a whole number")
