"""Units by name: one parser, one order."""

from __future__ import annotations

import pytest
from tiny_model import tiny_model

from residual_audio.errors import InputError
from residual_audio.models.clap import AudioTextModel
from residual_audio.types import LEVELS, parse_unit, parse_units, stage_named, unite, units_of


@pytest.fixture(scope="module")
def model() -> AudioTextModel:
    return tiny_model()


def test_units_by_name(model):
    sites = model.encoder.sites
    assert parse_unit("L2_B1_H1", sites).name == "s2.b1.h1"
    assert len(parse_unit("s2", sites).sites) == 4
    assert parse_unit("a=s0.b0.h0+s1.b0.mlp", sites).name == "a"
    assert parse_unit("s3.b0.h0+s1.b0.mlp", sites).block == 2
    with pytest.raises(InputError, match=r"s9\.b0\.h0"):
        parse_unit("s9.b0.h0", sites)
    with pytest.raises(InputError, match="level"):
        units_of(sites, "layer")
    assert unite([], "nothing").block == 0


def test_wildcards_stand_for_parts_of_a_name(model):
    sites = model.encoder.sites
    assert [u.name for u in parse_units("s1.*.attention", sites)] == ["s1.b0.attention"]
    assert len(parse_units("s*.*.h*", sites)) == len(units_of(sites, "head"))
    assert [u.name for u in parse_units("s*", sites)] == ["s0", "s1", "s2", "s3"]
    assert len(parse_units(["mlp", "s0.b0.mlp"], sites)) == len(units_of(sites, "mlp"))
    assert parse_unit("s0.*.mlp", sites).kind == "set"


def test_units_sort_in_order_of_computation(model):
    sites = model.encoder.sites
    given = parse_units(["output", "s1.b0.mlp", "s0.b1.h1", "s0.b1.h0", "s0"], sites)
    assert [u.name for u in sorted(given)] == ["s0", "s0.b1.h0", "s0.b1.h1", "s1.b0.mlp", "output"]


def test_a_name_alone_tells_the_stage_that_its_sites_tell(model):
    sites = model.encoder.sites
    for unit in (unit for level in LEVELS for unit in units_of(sites, level)):
        assert stage_named(unit.name) == unit.stage
    assert stage_named("L2_B5_H11") == 2
    with pytest.raises(InputError, match="'banana' is no unit"):
        stage_named("banana")
