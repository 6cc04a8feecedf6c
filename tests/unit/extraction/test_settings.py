"""Settings of an extraction: keywords and dataclass say the same."""

from __future__ import annotations

from dataclasses import fields

import pytest

from residual_audio.errors import InputError
from residual_audio.extraction.extract_settings import ExtractOptions, ExtractSettings


def test_every_setting_is_a_keyword_and_no_keyword_is_unknown() -> None:
    assert list(ExtractOptions.__annotations__) == [field.name for field in fields(ExtractSettings)]


def test_settings_that_make_no_store_are_refused() -> None:
    with pytest.raises(InputError, match="goes with --long tile"):
        ExtractSettings(hop_s=2.0)
    with pytest.raises(InputError, match="must be positive"):
        ExtractSettings(shard_size=0)
