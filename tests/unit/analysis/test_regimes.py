"""Heads after W_O and in the joint space: the same numbers as from the wide vectors themselves."""

import numpy as np
import pytest
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.analysis.regimes import in_space
from residual_audio.cli.app import build
from residual_audio.errors import InputError
from residual_audio.metrics.spectra import effective_rank, eigenspectrum


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    sounds = ra.load_dataset("synthetic", n_clips=48, seed=5)
    return ra.extract("nano", sounds, tmp_path_factory.mktemp("run"), capture="heads,direct")


def rank(x: np.ndarray) -> float:
    return float(effective_rank(eigenspectrum(x[None]))[0])


def test_projected_heads_have_the_spectra_and_places_of_the_wide_ones(run):
    seen = in_space(run.store, "projected")
    site = seen.attention_sites[5]
    wide = run.store.projected(site.heads[2])
    narrow = seen.heads(site)[:, 2]
    assert narrow.shape[1] == site.d_head < wide.shape[1]
    assert rank(narrow) == pytest.approx(rank(wide), rel=1e-4)
    back = narrow @ seen.w_out(site)[2]
    np.testing.assert_allclose(back - back.mean(0), wide - wide.mean(0), atol=1e-4)


def test_joint_heads_are_what_reaches_the_embedding(run):
    seen = in_space(run.store, "joint")
    site = seen.attention_sites[-1]
    joint = seen.heads(site)
    assert joint.shape == (48, site.n_heads, site.d_head)
    assert site.d_head == run.store.embedding().shape[1]
    table = ra.analyse(run, "dimension,separability", space="joint").heads
    row = next(r for r in table.rows() if r["head_id"] == str(site.heads[0]))
    assert row["eff_rank"] == pytest.approx(rank(joint[:, 0]), rel=1e-3)


def test_every_figure_under_its_first_name(run):
    args = ["analyse", str(run.folder), "--metrics", "dimension,similarity,separability"]
    done = CliRunner().invoke(build(), [*args, "--space", "projected", "--names", "seeds", "-q"])
    assert done.exit_code == 0, done.output
    drawn = {path.name for path in (run.folder / "projected" / "figures").iterdir()}
    expected = "panel_A panel_H htsat_block_metrics spectral_fingerprinting head_similarity_matrix"
    for name in (*expected.split(), "class_activation_heatmap", "fisher_discriminability"):
        assert f"postproj_{name}.png" in drawn
    with pytest.raises(InputError, match="no space"):
        in_space(run.store, "beyond")
