"""What every data set promises, on tiny fake releases in the official layouts."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from fake_releases import RELEASES, Release, run, write_wav

from residual_audio.data.check import check_dataset
from residual_audio.data.registry import dataset_card, dataset_names, load_dataset, parse_name
from residual_audio.errors import AudioError, DatasetError, InputError

ON_DISK = sorted(RELEASES)


@pytest.fixture(params=ON_DISK)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Release]:
    return request.param, tmp_path, RELEASES[request.param](tmp_path)


def test_every_data_set_has_a_release_to_test_it_on() -> None:
    assert {*dataset_names()} == {*RELEASES, "synthetic", "joined", "hf", "wds"}


@pytest.mark.parametrize("name", dataset_names())
def test_card_says_what_a_user_needs(name: str) -> None:
    card = dataset_card(name)
    assert card.name == name
    assert all((card.title, card.licence, card.layout, card.download, card.group))
    if name not in ("synthetic", "folder", "manifest", "joined"):
        assert card.url.startswith("https://")
        assert card.citation


def test_contract(made: tuple[str, Path, Release]) -> None:
    name, root, release = made
    data = load_dataset(name, root)
    assert data.name == name
    assert len(data) == len(data.clips) == release.n_clips
    assert len({clip.id for clip in data.clips}) == release.n_clips
    assert not data.missing
    labels = {clip.label for clip in data.clips if clip.label}
    assert len(labels) == release.n_classes
    assert labels <= set(data.classes)
    assert len(data.classes) == len(set(data.classes))
    assert not any("_" in label for label in data.classes)
    assert len({clip.group for clip in data.clips}) == release.groups
    assert data.folds == release.folds
    assert {c.fold for c in data.clips if c.fold is not None} == set(release.folds)
    assert len(data.pairs) == release.n_pairs
    assert all(data.status(clip) == "ok" for clip in data.clips)
    assert len(data.prompts()) == len(data.classes)
    assert "{}" in data.template
    again = load_dataset(name, root)
    assert again.clips == data.clips
    assert again.fingerprint() == data.fingerprint()
    assert pickle.loads(pickle.dumps(data)).clips == data.clips  # noqa: S301
    for clip in data.clips:
        wave = data.read(clip, 16_000)
        assert wave.dtype == np.float32
        assert wave.ndim == 1
        assert abs(len(wave) - 1600) <= 8
        assert np.abs(wave).max() > 0.01


def test_pairs_refer_to_clips_of_the_set(made: tuple[str, Path, Release]) -> None:
    name, root, _ = made
    data = load_dataset(name, root)
    clips = set(data.clips)
    for pair in data.pairs:
        assert len(pair.captions) == len(pair.clips) in (2, 3)
        for caption, clip in zip(pair.captions, pair.clips, strict=True):
            assert clip in clips
            assert caption in clip.captions


def test_fingerprint_does_not_depend_on_the_place(made: tuple[str, Path, Release]) -> None:
    name, root, release = made
    there = root.parent / f"{root.name}-moved"
    shutil.copytree(root, there)
    before = load_dataset(name, root).fingerprint()
    assert load_dataset(name, there).fingerprint() == before
    write_wav(there / release.drop, n=900)
    assert load_dataset(name, there).fingerprint() != before


def test_missing_file_stays_listed(made: tuple[str, Path, Release]) -> None:
    name, root, release = made
    before = load_dataset(name, root).fingerprint()
    (root / release.drop).unlink()
    data = load_dataset(name, root)
    if release.counts_only:
        assert len(data) == release.n_clips - 1
        return
    assert len(data) == release.n_clips
    assert list(data.missing) == [release.drop_id]
    clip = next(clip for clip in data.clips if clip.id == release.drop_id)
    assert data.status(clip).startswith("skipped(no file ")
    with pytest.raises(AudioError, match="no file"):
        data.read(clip, 16_000)
    assert data.fingerprint() != before
    assert release.drop_id in check_dataset(data).problems
    few = data.select(limit=max(1, release.n_clips - 1))
    assert clip not in few.clips


def test_select_by_fold(made: tuple[str, Path, Release]) -> None:
    name, root, release = made
    data = load_dataset(name, root)
    assert data.select() is data
    parts = [data.select(folds=[fold]) for fold in release.folds]
    if parts:
        assert sum(len(part) for part in parts) == len(data)
    for (number, title), part in zip(release.folds.items(), parts, strict=True):
        assert {clip.fold for clip in part.clips} == {number}
        assert data.select(folds=[title]).clips == part.clips
        assert part.fingerprint() != data.fingerprint()
    with pytest.raises(DatasetError, match="no fold '99'"):
        data.select(folds=[99])


def test_select_limit_spreads(made: tuple[str, Path, Release]) -> None:
    name, root, release = made
    data = load_dataset(name, root)
    for limit in range(1, release.n_clips + 1):
        part = data.select(limit=limit)
        assert part.clips == data.select(limit=limit).clips
        if data.pairs:
            assert part.pairs
            assert {c for p in part.pairs for c in p.clips} == set(part.clips)
            continue
        assert len(part) == limit
        per_class = [sum(c.label == label for c in part.clips) for label in data.classes]
        whole = [sum(c.label == label for c in data.clips) for label in data.classes]
        short = [n for n, all_of in zip(per_class, whole, strict=True) if n < all_of]
        if short:
            assert max(per_class) - min(short) <= 1
    with pytest.raises(InputError, match="limit of 0"):
        data.select(limit=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty|not readable JSON"),
        (b"\xef\xbb\xbf", "empty|not readable JSON"),
        (b"a,b\n1,2\n", "no column .*; found: a, b; expected: |not readable JSON"),
        (b"\xff\xfe\x00broken", "not UTF-8|not readable JSON"),
        (b"{}", "no column|not a list of recordings|no notes"),
    ],
)
@pytest.mark.parametrize("name", [name for name in ON_DISK if name not in ("folder", "irmas")])
def test_broken_metadata(name: str, tmp_path: Path, content: bytes, message: str) -> None:
    root, release = tmp_path, RELEASES[name](tmp_path)
    assert release.table is not None
    (root / release.table).write_bytes(content)
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(name, root)
    assert Path(release.table).name in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [name for name in ON_DISK if name not in ("folder", "irmas", "nsynth", "vocalsound")],
)
def test_header_without_rows_and_ragged_rows(name: str, tmp_path: Path) -> None:
    root, release = tmp_path, RELEASES[name](tmp_path)
    assert release.table is not None
    table = root / release.table
    header, *rest = table.read_text(encoding="utf-8").splitlines()
    table.write_text(header + "\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="no rows"):
        load_dataset(name, root)
    table.write_text("\n".join([header, rest[0], "one"]), encoding="utf-8")
    with pytest.raises(DatasetError, match="line 3 has 1 fields"):
        load_dataset(name, root)
    table.write_text("\n".join([header, *rest, "", "  ", ""]), encoding="utf-8")
    assert len(load_dataset(name, root)) == release.n_clips


@pytest.mark.parametrize("name", ON_DISK)
def test_wrong_folder_says_what_to_do(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        load_dataset(name, tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert dataset_card(name).download in str(caught.value)
    with pytest.raises(DatasetError, match="no folder '/nowhere/at all'"):
        load_dataset(name, "/nowhere/at all")
    with pytest.raises(DatasetError, match="needs a folder"):
        load_dataset(name)


@pytest.mark.parametrize(
    "name", ["esc50", "orchestra", "tinysol", "compa-order", "compa-attribute", "clotho"]
)
def test_metadata_cannot_leave_its_folder(name: str, tmp_path: Path) -> None:
    release = RELEASES[name](tmp_path / "root")
    write_wav(tmp_path / "secret.wav")
    assert release.table is not None
    table = tmp_path / "root" / release.table
    inside = release.drop_id.rpartition("/")[2] if name == "clotho" else release.drop_id
    text = table.read_text(encoding="utf-8")
    assert inside in text
    for outside in ("../../../secret.wav", str(tmp_path / "secret.wav")):
        table.write_text(text.replace(inside, outside), encoding="utf-8")
        with pytest.raises(DatasetError, match="leaves the folder"):
            load_dataset(name, tmp_path / "root")


def test_check_reports_counts_and_exit_codes(made: tuple[str, Path, Release]) -> None:
    name, root, release = made
    known = dataset_card(name).n_clips or dataset_card(name).counts
    code, text = run("check", name, "--root", str(root), "--json")
    report = json.loads(text)
    assert code == (3 if known else 0)
    assert report["complete"] is (code == 0)
    assert report["n_clips"] == report["n_usable"] == release.n_clips
    assert report["problems"] == {}
    (root / release.drop).write_bytes(b"")
    report = check_dataset(load_dataset(name, root)).to_json()
    assert list(report["problems"].values()) == ["empty file"]
    (root / release.drop).write_bytes(b"RIFF, but not really")
    assert check_dataset(load_dataset(name, root)).n_usable == release.n_clips
    code, text = run("check", name, "--root", str(root), "--json", "--decode")
    assert code == 3
    assert list(json.loads(text)["problems"]) == [release.drop_id]
    (root / release.drop).unlink()
    code, text = run("check", name, "--root", str(root))
    assert "complete" in text
    if not release.counts_only:
        assert code == 3
        assert f"problem: {release.drop_id}" in text


def test_list_and_show() -> None:
    code, text = run("--json")
    cards = json.loads(text)
    assert code == 0
    assert [card["name"] for card in cards] == list(dataset_names())
    code, text = run()
    for card in cards:
        assert card["download"] in text
        assert run("show", card["name"])[0] == 0
    assert json.loads(run("show", "esc50", "--json")[1])["n_clips"] == 2000


def test_unknown_names_are_quoted(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no data set 'esc51'; there are: .*esc50"):
        load_dataset("esc51")
    with pytest.raises(InputError, match="no option 'fold'; it has: captions"):
        load_dataset("esc50", tmp_path, fold=1)
    with pytest.raises(InputError, match="is not an option"):
        parse_name("clotho:evaluation")
    assert parse_name("synthetic:kind=order,n_clips=4,classes=rain,wind,triplets=true") == (
        "synthetic",
        {"kind": "order", "n_clips": 4, "classes": "rain,wind", "triplets": True},
    )


# what only one of them does
