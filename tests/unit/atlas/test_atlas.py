"""What the atlas says is what the store says: sums, components, sliders, sentences."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from atlas_pieces import piece, unpack
from small_run import small_dataset, small_model
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.atlas.build import AtlasSettings, write_atlas
from residual_audio.atlas.components import ComponentsOfRun, most_pointed, pointed_clips, words_of
from residual_audio.atlas.media import read_media
from residual_audio.atlas.packed import bytes_between, floats, rows_of_integers
from residual_audio.atlas.shelf import SCRIPTS, STYLES, WEB, as_json, as_single_page
from residual_audio.cli.app import build
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.report.run_tables import Tables
from residual_audio.report.table_files import write_csv
from residual_audio.reweight.sliders import gains_of_sliders
from residual_audio.reweight.terms import apply_direct
from residual_audio.seals import seal_files
from residual_audio.surface.gain_studies import slider_gains
from residual_audio.table import Table


def test_packed_arrays_come_back():
    values = np.random.default_rng(0).normal(size=(5, 7)) * np.logspace(-3, 3, 5)[:, None]
    np.testing.assert_allclose(unpack(floats(values)), values, rtol=1e-6)
    rough = unpack(rows_of_integers(values))
    assert (np.abs(rough - values) <= 1.6e-5 * np.abs(values).max(1, keepdims=True)).all()
    low, high = float(values.min()), float(values.max())
    assert np.abs(unpack(bytes_between(values, low, high)) - values).max() <= (high - low) / 500
    assert unpack(rows_of_integers(np.zeros((2, 3)))).tolist() == [[0] * 3] * 2


def test_no_text_can_end_a_script():
    text = as_json({"a": "</script><!--&\u2028"})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"a": "</script><!--&\u2028"}


def test_every_source_of_the_page_is_joined():
    assert sorted(SCRIPTS) == sorted(path.name for path in WEB.glob("*.js"))
    for path in WEB.glob("*.js"):
        assert "innerHTML" not in path.read_text(), path.name
        assert "eval(" not in path.read_text(), path.name
    assert sorted(STYLES) == sorted(path.name for path in WEB.glob("*.css"))


def test_sources_of_the_page_can_be_read():
    for path in (*WEB.glob("*.js"), *WEB.glob("*.css")):
        lines = path.read_text().splitlines()
        assert len(lines) <= 420, path.name
        assert max(map(len, lines)) <= 120, path.name
        assert lines[0].startswith(("// ", "/* ", "'use strict'")), path.name


def test_terms_of_a_clip_sum_to_its_scores(small_atlas_run: Path):
    main, store = piece(small_atlas_run, "main"), ra.open_store(small_atlas_run)
    for row in (0, len(store) - 1):
        found = piece(small_atlas_run, f"clip/{row}")
        terms = unpack(found["terms"])
        assert terms.shape == (len(found["answers"]), len(main["terms"]))
        scores = store.embedding()[row] @ store.class_embeddings().T
        for (code, score), own in zip(found["answers"], terms, strict=True):
            assert score == pytest.approx(scores[code], abs=1e-5)
            assert own.sum() == pytest.approx(score, abs=1e-4)
        # for an MLP the joint head's own term holds its biases alone: heads carry the rest
        assert np.abs(terms[:, -1]).max() < np.abs(terms[:, :-1]).sum()


def test_curves_over_time_are_those_of_the_time_map(small_atlas_run: Path):
    found, main = piece(small_atlas_run, "clip/1"), piece(small_atlas_run, "main")
    asked, curves = found["times"]["asked"], unpack(found["times"]["curves"])
    answers = [one for one in asked if one["kind"] == "answer"]
    assert [one["text"] for one in answers] == [main["classes"][c] for c, _ in found["answers"]]
    model, dataset = small_model(), small_dataset()
    clip = next(c for c in dataset.clips if c.id == main["clips"]["id"][1])
    wave = dataset.read(clip, model.sample_rate_hz)
    text = main["template"].format(answers[1]["text"])
    one = ra.time_map(model, wave, text, sample_rate=model.sample_rate_hz)
    assert answers[1]["score"] == pytest.approx(one.score, abs=1e-5)
    np.testing.assert_allclose(curves[1], one.total, atol=1e-5)


def test_responses_sum_to_the_coordinate(small_atlas_run: Path):
    store = ra.open_store(small_atlas_run)
    media = read_media(small_atlas_run, [str(i) for i in store.clips["id"]])
    components = ComponentsOfRun(store)
    checked = 0
    for one in pointed_clips(components)[::7]:
        response = media.response(str(one.head), one.component, one.row)
        assert response is not None
        coordinate = components[one.head].coordinates[one.row, one.component]
        spread = np.sqrt(components[one.head].spectrum.eigenvalues[one.component])
        assert response.sum() == pytest.approx(coordinate, abs=1e-3 * spread)
        checked += 1
    assert checked > 10


def test_both_ends_share_no_clip_and_every_head_is_heard(small_atlas_run: Path):
    components = ComponentsOfRun(ra.open_store(small_atlas_run))
    for one in components.all():
        for c in range(one.n_shown):
            ends = one.ends(c)
            assert not set(ends["+"]) & set(ends["-"])
            along = one.coordinates[:, c]
            assert along[ends["+"][0]] == along.max()
            assert along[ends["-"][0]] == along.min()
    pointed = pointed_clips(components)
    few = most_pointed(pointed, 6)
    assert len(few) == len(set(few)) == 6
    firsts = {one.row for one in pointed if one.component == 0}
    assert set(few) <= firsts


def test_words_are_of_the_direction_that_the_clips_lie_on(small_atlas_run: Path):
    components = ComponentsOfRun(ra.open_store(small_atlas_run))
    words = words_of(components)
    head = components.store.all_heads[-1]
    assert len(words[str(head)]) == components[head].n_shown
    assert words[str(head)][0]["+"].texts != words[str(head)][0]["-"].texts


@pytest.mark.parametrize(
    "sliders",
    [
        {"s3.b0.h1": [0.0]},
        {"s3.b0.h0": [1.5, 0.2, 1.0, 2.0]},
        {"s2": [0.5], "s3.b0.attention": [2]},
    ],
)
def test_pieces_of_the_sliders_give_the_latents_of_python(
    small_atlas_run: Path, sliders: dict[str, list[float]]
):
    parts = Contributions(ra.open_store(small_atlas_run))
    latent = unpack(piece(small_atlas_run, "move/base")["latent"]).astype(np.float64)
    stages = piece(small_atlas_run, "main")["move"]["stages"]
    for name, (whole, *single) in sliders.items():
        for site in stages.get(name, [name]):
            found = piece(small_atlas_run, f"move/{site}")
            if "whole" in found:
                latent = latent + (whole - 1) * unpack(found["whole"])
                continue
            along, axes = unpack(found["along"]), unpack(found["axes"])
            gains = np.full(len(along), whole)
            gains[: len(single)] += np.array(single) - 1
            latent = latent + (along.T * (gains - 1)) @ axes
    expected = apply_direct(parts, gains_of_sliders(sliders, parts))
    size = np.linalg.norm(expected, axis=1).mean()
    assert np.abs(latent - expected).max() < 2e-4 * size
    assert np.abs(expected - parts.latent).max() > 1e-3 * size


def test_rules_add_to_sliders(small_atlas_run: Path):
    rule = slider_gains(small_atlas_run, {}, rules={"prune-early": 1.0})
    half = slider_gains(small_atlas_run, {"s0.b0.h0": [2.0]}, rules={"prune-early": 0.5})
    assert set(rule.gains) >= {"s0.b0.h0", "s1.b0.h0"}
    assert {0.0, 1.0} == set(np.concatenate(list(rule.gains.values())).tolist())
    own = rule.gains["s0.b0.h0"]
    np.testing.assert_allclose(half.gains["s0.b0.h0"], 2.0 + 0.5 * (own - 1.0))
    assert rule.fitted_on["model"]["sha256"] == ra.open_store(small_atlas_run).model_info.sha256
    with pytest.raises(InputError, match="'fisher' is no rule of the atlas"):
        slider_gains(small_atlas_run, {}, rules={"fisher": 1.0})


def test_the_command_writes_sliders_as_gains(small_atlas_run: Path, tmp_path: Path):
    call = ["reweight", "sliders", str(small_atlas_run), "s3=0.5", "-o", str(tmp_path / "mine")]
    done = CliRunner().invoke(build(), [*call, "--rule", "prune-early:0.5", "--json"])
    assert done.exit_code == 0, done.output
    gains = ra.load_gains(json.loads(done.stdout)["out"])
    assert (gains.path, gains.gains["s3"].tolist()) == ("direct", [0.5])
    assert 0.5 in gains.gains["s0.b0.h0"]
    wrong = CliRunner().invoke(build(), [*call[:3], "s3=half", "-o", str(tmp_path / "mine")])
    assert wrong.exit_code != 0
    assert "sets no gain" in str(wrong.exception) + wrong.output


def test_the_answer_has_numbers_intervals_and_limits(small_atlas_run: Path):
    answer = piece(small_atlas_run, "main")["answer"]
    whole = " ".join(one["text"] for one in answer["found"])
    assert "95% interval" in whole
    assert "by chance" in whole
    assert "Reweighting components" in whole
    assert any("a class" in text for text in answer["limits"])
    assert any("smallest change" in text for text in answer["limits"])
    assert 3 <= len(answer["found"]) <= 5


def test_an_atlas_without_sounds_says_what_is_missing(small_atlas_run: Path, tmp_path: Path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("store", "tables"):
        (bare / name).symlink_to(small_atlas_run / name)
    made = write_atlas(bare, AtlasSettings(single_file=True))
    assert any("no sounds" in line for line in made.missing)
    assert [path.name for path in made.files] == ["index.html"]
    assert made.page.read_text().count('data-piece="head/') == len(ra.open_store(bare).all_heads)
    with pytest.raises(InputError, match="not a run folder"):
        write_atlas(tmp_path / "nothing")


def test_the_surface_shows_an_atlas(small_atlas_run: Path, tmp_path: Path):
    made = ra.atlas(small_atlas_run, out=tmp_path / "one", single_file=True)
    assert made.page.is_file()
    assert made._repr_html_().startswith("<iframe srcdoc=")
    assert "<script>" not in made._repr_html_()
    folder = ra.atlas(small_atlas_run, out=tmp_path / "many")
    inline, single = as_single_page(folder.page), made.page.read_text()
    assert sorted(inline.splitlines()) == sorted(single.splitlines())


def test_the_answer_says_what_reweighting_costs_elsewhere(small_atlas_run: Path):
    main, tables = piece(small_atlas_run, "main"), Tables(small_atlas_run)
    rows = [r for r in tables["adapted"].rows() if r["kind"] == "residual"]
    (row,) = rows
    assert np.isfinite(row["lost"])
    texts = [one["text"] for one in main["answer"]["found"]]
    said = next(text for text in texts if "reference runs" in text)
    changed = f"{-100 * row['lost']:+.1f}".replace("-", "−")
    assert f"changes by {'0.0' if changed[1:] == '0.0' else changed} points" in said
    assert "3 edits (blend of the gains)" in said
    (line,) = main["front"]
    assert [point[0] for point in line["points"]] == [0.0, 0.5, 1.0]
    assert line["points"][0][1:3] == [0.0, 0.0]  # no edit: nothing gained, nothing lost
    table = tables["front"]
    gained = (table["top1"] - table["zero_shot"]).tolist()
    assert [point[1] for point in line["points"]] == pytest.approx(gained, abs=1e-5)


def test_a_run_that_measured_nothing_elsewhere_says_so(small_atlas_run: Path, tmp_path: Path):
    bare = tmp_path / "run"
    shutil.copytree(small_atlas_run, bare, ignore=shutil.ignore_patterns("atlas", "front.csv"))
    path = bare / "tables" / "adapted.csv"
    table = Tables(bare)["adapted"]
    kept = {k: v for k, v in table.columns.items() if not k.startswith("lost")}
    seal_files([write_csv(path, Table("adapted", kept))])
    write_atlas(bare)
    found = piece(bare, "main")
    texts = [one["text"] for one in found["answer"]["found"]]
    assert any("was not measured in this run" in text for text in texts)
    assert found["front"] is None
