"""What open_clip's tokenizers do to a text before they cut it into tokens."""

from __future__ import annotations

import html
import string
import unicodedata
from typing import Literal

Cleaning = Literal["", "whitespace", "lower", "canonicalize"]
"""Nothing; spaces collapsed; lower case too; punctuation removed too."""

_STRAIGHT = str.maketrans(
    {"‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"',
     "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl"}
)  # fmt: skip
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def clean_text(text: str, how: Cleaning) -> str:
    """Entities undone, quotes straight, ligatures apart, composed characters; then as `how` says.

    Upstream also repairs text that was decoded wrongly (ftfy); that is left as it is here.
    """
    if not how:
        return text
    text = html.unescape(html.unescape(text))
    text = unicodedata.normalize("NFC", text.translate(_STRAIGHT))
    if how == "canonicalize":
        text = text.replace("_", " ").translate(_NO_PUNCTUATION)
    if how in ("lower", "canonicalize"):
        text = text.lower()
    return " ".join(text.split())
