"""Which adaptations a run compares."""

from __future__ import annotations

import pytest

from residual_audio.adaptation import adapted
from residual_audio.adaptation.methods.registry import ENTRIES, find_entries
from residual_audio.pipeline import work
from residual_audio.pipeline.run_settings import RunSettings


class _Asked(Exception):
    """Carries what the comparison was asked for."""


@pytest.mark.parametrize(
    ("given", "there", "absent"),
    [
        ({}, {"residual", "coarse", "shuffled", "ridge", "linear-probe-latent"}, {"unbounded"}),
        ({"quick": True}, {"residual", "coarse", "linear-probe-joint"}, {"shuffled"}),
        ({"every_method": True}, {entry.key for entry in ENTRIES}, set()),
    ],
)
def test_a_run_compares_the_main_methods_or_all(monkeypatch, tmp_path, given, there, absent):
    def asked(store, settings, **_):
        raise _Asked(settings)

    monkeypatch.setattr(adapted, "adapt", asked)

    class Place:
        settings = RunSettings("nano", "synthetic", tmp_path, **given)
        progress = None

        class store:
            sites = tuple(type("S", (), {"stage": stage}) for stage in range(4))

    with pytest.raises(_Asked) as found:
        work.reweight_store(Place)
    asked_for = found.value.args[0]
    every = asked_for.every_method
    chosen = {e.key for e in (ENTRIES if every else find_entries(asked_for.methods, ENTRIES))}
    assert there <= chosen
    assert not absent & chosen
