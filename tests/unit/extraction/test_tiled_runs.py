"""Long recordings: windows as rows, their means by clip, and only what is needed in memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

import residual_audio as ra
from residual_audio.ablation.effect_tables import effects_table
from residual_audio.ablation.interventions import Way, interventions_on, take_out
from residual_audio.analysis.source import clip_groups
from residual_audio.benchmarks.small_model import SPEC, small_model
from residual_audio.data.registry import load_dataset
from residual_audio.data.splits import grouped_folds
from residual_audio.data.tiled import Tiling, tiled
from residual_audio.errors import InputError
from residual_audio.extraction.extraction import extract
from residual_audio.extraction.same_data import check_same_data, heard_again
from residual_audio.extraction.summary import summarise
from residual_audio.judge.of_store import clips_of
from residual_audio.passes.embed import embed_items
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import cut_clips
from residual_audio.store.by_clip import by_clip
from residual_audio.surface.runs import Run
from residual_audio.types import parse_units

SECONDS = {"dog/a": 3.3, "dog/b": 0.4, "rain/c": 1.0, "rain/d": 2.2, "wind/e": 5.0, "wind/f": 1.2}


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sounds")
    rng = np.random.default_rng(0)
    for name, seconds in SECONDS.items():
        path = root / f"{name}.{'ogg' if name == 'rain/d' else 'flac'}"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, rng.normal(0, 0.1, round(seconds * 11_025)), 11_025)
    return root


@pytest.fixture(scope="module")
def run(sounds: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run")
    data = load_dataset("folder", sounds)
    model = small_model()
    extract(
        model, data, out, capture="heads,direct,moments", long="tile", hop_s=0.5, shard_size=4,
        batch_size=4, device="cpu",
    )  # fmt: skip
    return Run(out, dataset=data, model=model)  # type: ignore[arg-type]


def test_every_window_is_a_row_that_knows_its_clip(run: Run) -> None:
    clips = run.store.clips
    starts = {name: [] for name in SECONDS}
    for name, start in zip(clips["part_of"], clips["start_s"], strict=True):
        if name is not None:
            starts[name.rpartition(".")[0]].append(start)
    # a window is one second, one begins every half; the last ends with the clip
    assert starts["dog/a"] == pytest.approx([0, 0.5, 1, 1.5, 2, 2.3], abs=1e-3)
    assert starts["dog/b"] == starts["rain/c"] == []
    assert starts["wind/e"] == pytest.approx(np.arange(0, 4.1, 0.5), abs=1e-3)
    assert len(run.store) == 6 + 1 + 1 + 4 + 9 + 2
    assert "wind/e.flac@0.5s" in clips["id"].tolist()


def test_no_split_and_no_bootstrap_tears_a_recording_apart(run: Run) -> None:
    clips = clips_of(run.store)
    by_name = {name: i for i, name in enumerate(run.store.clips["id"])}
    folds = grouped_folds(clips, 2, seed=0)
    groups = clip_groups(run.store)
    for name in ("dog/a", "wind/e"):
        rows = [row for clip, row in by_name.items() if clip.startswith(name)]
        assert len(rows) > 1
        assert len({folds[row] for row in rows}) == 1
        assert len({groups[row] for row in rows}) == 1


def test_means_by_clip_are_those_of_the_embedder(run: Run) -> None:
    """End to end, windows are those that embedding with `tile` averages."""
    model, data = small_model(), run.dataset
    cut = cut_clips(model, data, "tile")
    found = embed_items(model, data.clips, cut, Hearing("tile", batch_size=4))
    end_to_end = extract(model, data, run.folder / "plain", long="tile", device="cpu").store
    means = by_clip(end_to_end)
    assert means.clips["id"].tolist() == [clip.id for clip in data.clips]
    np.testing.assert_allclose(means.embedding(), found.vectors, atol=2e-5)


def test_the_direct_path_of_a_mean_is_the_mean_of_direct_paths(run: Run) -> None:
    from residual_audio.direct.contributions import Contributions

    store, means = run.store, by_clip(run.store)
    rows = [i for i, name in enumerate(store.clips["id"]) if str(name).startswith("wind/e")]
    windows, clips = Contributions(store)["s3.b0.h1"], Contributions(means)["s3.b0.h1"]
    row = means.clips["id"].tolist().index("wind/e.flac")
    np.testing.assert_allclose(clips[row], windows[rows].mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(means.latent()[row], store.latent()[rows].mean(0), rtol=1e-5)
    assert means.heads("s0.b0.attention").shape[0] == len(means) == len(SECONDS)
    assert means.moments("s0.b0.attention").n == store.moments("s0.b0.attention").n


def test_analysis_and_ablation_count_clips_not_windows(run: Run) -> None:
    analysis = ra.analyse(run, "dimension")
    assert analysis.statistics["n_clips"] == len(SECONDS)
    passes = run.passes(small_model())  # type: ignore[arg-type]
    given = interventions_on(run.store, passes=passes)
    assert len(given.rows) == len(run.store)
    unit = parse_units(["s3.b0.h1"], run.store.sites)
    effects = take_out(given, unit, Way("exact"))
    table = effects_table(given, unit, effects, "set")
    assert table["n"].tolist() == [len(SECONDS)]
    change = effects.delta("margin")[0]
    by_hand = [change[given.owners == i].mean() for i in range(len(SECONDS))]
    assert float(table["d_margin"][0]) == pytest.approx(np.mean(by_hand))


def test_clips_heard_again_are_the_rows_and_must_not_have_changed(run: Run, sounds: Path) -> None:
    data = heard_again(run.store, run.dataset, small_model())
    assert [clip.id for clip in data.clips] == run.store.clips["id"].tolist()
    check_same_data(run.store, data)
    other = replace(run.dataset, clips=tuple(replace(c, label="x") for c in run.dataset.clips))
    with pytest.raises(InputError, match="has changed"):
        check_same_data(run.store, heard_again(run.store, other, small_model()))


def test_a_stopped_run_goes_on_and_another_hop_is_refused(run: Run) -> None:
    before = {path.name: path.read_bytes() for path in (run.folder / "store").glob("shard-*")}
    (run.folder / "store" / "shard-00002.safetensors").unlink()
    how = {"capture": "heads,direct,moments", "long": "tile", "shard_size": 4, "batch_size": 4}
    again = extract(small_model(), run.dataset, run.folder, hop_s=0.5, device="cpu", **how)
    assert again.n_shards_made == 1
    told = summarise(again, run.folder)
    assert (told["n_ok"], told["n_recordings"]) == (len(run.store), len(SECONDS))
    after = {path.name: path.read_bytes() for path in (run.folder / "store").glob("shard-*")}
    assert before == after
    with pytest.raises(ra.ResidualAudioError, match="hop_s"):
        extract(small_model(), run.dataset, run.folder, hop_s=0.25, device="cpu", **how)


@pytest.mark.parametrize("hop_s", [0.0, 1.5, -1.0])
def test_hops_that_make_no_sense(hop_s: float) -> None:
    with pytest.raises(InputError, match="hop"):
        Tiling.of(SPEC.sample_rate_hz, SPEC.n_samples, hop_s)


def test_sounds_made_on_demand_are_cut_too() -> None:
    data = load_dataset("synthetic", n_clips=2)
    whole = data.read(data.clips[1], 8000)
    windows = tiled(data, Tiling.of(8000, 16_000))
    last = windows.clips[len(windows.clips) - 1]
    assert last.part_of == data.clips[1].id
    np.testing.assert_array_equal(windows.read(last, 8000), whole[-16_000:])


def test_long_recordings_stay_within_bounds(tmp_path: Path) -> None:
    """Ten minutes at 48 kHz are 115 MB as numbers; a window of it is nothing."""
    (tmp_path / "x").mkdir()
    with soundfile.SoundFile(tmp_path / "x" / "long.flac", "w", 48_000, 1) as file:
        for _ in range(10):
            file.write(np.zeros(48_000 * 60, np.int16))
    model, data = small_model(), load_dataset("folder", tmp_path)
    (clip,) = data.clips

    def tile() -> None:
        hearing = Hearing("tile", n_threads=0)
        assert len(embed_items(model, [clip], cut_clips(model, data, "tile"), hearing).vectors) == 1

    def center() -> None:
        assert len(cut_clips(model, data, "center")(clip)) == 1  # type: ignore[arg-type]

    def store() -> None:
        windows = tiled(data, Tiling.of(SPEC.sample_rate_hz, SPEC.n_samples, 0.5))
        assert len(windows.clips) == 2 * 10 * 60 - 1
        assert len(windows.read(windows.clips[900], SPEC.sample_rate_hz)) == SPEC.n_samples

    for work in (center, store, tile):
        tracemalloc.start()
        work()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20e6, work


def test_a_recording_that_breaks_off_is_skipped_whole(sounds: Path) -> None:
    model, data = small_model(), load_dataset("folder", sounds)

    def broken(clip):  # type: ignore[no-untyped-def]
        cut = cut_clips(model, data, "tile")(clip)
        if not clip.id.startswith("wind/e"):
            return cut
        return _breaking(cut)

    found = embed_items(model, data.clips, broken, Hearing("tile", batch_size=2))
    assert [data.clips[i].id for i in found.skipped] == ["wind/e.flac"]
    assert len(found.vectors) == len(SECONDS) - 1
    assert np.isfinite(found.vectors).all()


def _breaking(windows):  # type: ignore[no-untyped-def]
    for i, window in enumerate(windows):
        if i == 3:
            raise ra.ResidualAudioError("the disk is gone")
        yield window
