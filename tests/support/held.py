"""Campaigns of faults must hold, whole."""

from __future__ import annotations

from residual_audio.benchmarks.faults.outcome import Campaign


def assert_held(campaigns: list[Campaign]) -> None:
    assert [broken for campaign in campaigns for broken in campaign.broken] == []
    assert all(campaign.tried == campaign.held > 0 for campaign in campaigns)
