"""The latent is the sum of what its units add, read from a store or from memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from direct_sources import two_stages
from tiny_model import CONFIG, tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError, StoreError
from residual_audio.extraction.extraction import extract
from residual_audio.store import Store
from residual_audio.types import Head, units_of

N = 13


@pytest.fixture(scope="module")
def dataset():
    return load_dataset("synthetic", n_clips=N, duration_s=1.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory, dataset) -> Store:
    folder = tmp_path_factory.mktemp("run")
    settings = {"capture": "heads,direct", "shard_size": 8, "batch_size": 4, "device": "cpu"}
    return extract(tiny_model(), dataset, folder, **settings).store


@pytest.fixture(scope="module")
def parts(store) -> Contributions:
    return Contributions(store)


def close(found: np.ndarray, wanted: np.ndarray) -> bool:
    return found.shape == wanted.shape and bool(
        np.abs(found - wanted).max() <= 2e-5 * np.abs(wanted).max()
    )


def test_all_units_sum_to_the_latent(store, parts) -> None:
    assert len(parts) == 2 + len(store.all_heads) + sum(CONFIG.depths)
    assert close(parts.total(), store.latent())


def test_sites_sum_to_the_latent_when_each_bias_counts_once(store, parts) -> None:
    total = parts["embedding"] + sum(parts.site(site) for site in store.sites)
    biases = parts.constants()
    total = total + sum(v for name, v in biases.items() if not name.endswith(".bias"))
    assert close(total, store.latent())
    assert close(sum(biases.values()), parts["constant"])
    assert set(biases) == {
        *(f"{site}.bias" for site in store.attention_sites),
        *(f"s{stage}.entry" for stage in (1, 2, 3)),
        "final",
    }


def test_an_attention_site_is_its_heads_and_its_bias(store, parts) -> None:
    for site in store.attention_sites:
        heads = sum(parts.head(head) for head in site.heads)
        assert close(parts.of(site), heads + parts.constants()[f"{site}.bias"])


def test_a_stage_is_its_sites_and_a_set_counts_a_head_once(store, parts) -> None:
    inside = [site for site in store.sites if site.stage == 2]
    assert close(parts.of("s2"), sum(parts.site(site) for site in inside))
    assert close(parts.of("s2.b1.attention+s2.b1.h0"), parts.of("s2.b1.attention"))
    assert close(parts.of("s2.b1.h0+s2.b1.h3"), parts["s2.b1.h0"] + parts["s2.b1.h3"])
    np.testing.assert_array_equal(parts.of("output"), store.latent())
    everything = [*units_of(store.sites, "head"), *units_of(store.sites, "mlp")]
    assert close(parts.rest(everything), parts["embedding"] + parts["constant"])


def test_a_head_is_its_pools_through_its_operator(parts) -> None:
    by_hand = parts.pools("s2.b1.h3") @ parts.operator("s2.b1.h3")
    np.testing.assert_array_equal(parts[str(Head(2, 1, 3))], by_hand)
    np.testing.assert_array_equal(parts.of(Head(2, 1, 3)), by_hand)


def test_some_clips_are_rows_of_all(store, parts) -> None:
    rows = np.array([5, 2, 11])
    some = Contributions(store, rows, keep=False)
    assert some.n_clips == 3
    for unit in ("embedding", "constant", "s0.b0.h1", "s1.b0.mlp", "s3.b0.attention"):
        assert close(some[unit], parts[unit][rows])


def test_what_is_no_unit_is_named(parts) -> None:
    with pytest.raises(KeyError, match="no unit of this encoder"):
        parts["s9.b0.h0"]
    assert parts.get("s9.b0.h0") is None
    with pytest.raises(InputError, match="has 4 heads"):
        parts.head("s2.b0.h4")
    with pytest.raises(InputError, match="no site"):
        parts.site("s2.b9.mlp")


def test_memory_is_as_good_as_a_store() -> None:
    source = two_stages(np.arange(12) % 3, 9)
    parts = Contributions(source)
    assert close(parts.total(), source.array("embedding/latent"))


def test_a_store_without_the_direct_path_says_how_to_get_it(tmp_path, dataset) -> None:
    found = extract(tiny_model(), dataset, tmp_path, capture="heads", limit=3, device="cpu").store
    with pytest.raises(StoreError, match="capture …,direct"):
        Contributions(found)


def test_reading_the_direct_path_and_the_joint_head_needs_no_torch(store) -> None:
    program = (
        "import sys; from residual_audio.store import open_store\n"
        "from residual_audio.direct.contributions import Contributions\n"
        "from residual_audio.direct.joint_arrays import joint_of\n"
        f"s = open_store({str(store.folder)!r}); Contributions(s).total()\n"
        "joint = joint_of(s); joint(s.latent()); joint.derivative(s.latent())\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
