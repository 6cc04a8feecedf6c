"""Units by name, as every option that takes a unit understands them."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from residual_audio.cli.app import build

runner = CliRunner()


def units(pattern: str) -> list[dict[str, object]]:
    call = ["units", "htsat-tiny-random", pattern, "--json"]
    found: list[dict[str, object]] = json.loads(runner.invoke(build(), call).stdout)
    return found


def test_all_heads_match_in_order_of_computation() -> None:
    heads = units("s*.*.h*")
    assert len(heads) == 184
    assert {row["width"] for row in heads} == {24}
    blocks = [row["block"] for row in heads]
    assert blocks == sorted(blocks)  # type: ignore[type-var]


def test_a_pattern_picks_sites_with_their_width() -> None:
    found = units("s3.*.attention")
    assert [row["unit"] for row in found] == ["s3.b0.attention", "s3.b1.attention"]
    assert {row["width"] for row in found} == {768}


def test_a_name_that_matches_nothing_is_an_error() -> None:
    assert runner.invoke(build(), ["units", "htsat-tiny-random", "s9.b0.h0"]).exit_code == 1
