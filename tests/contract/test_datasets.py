"""What every data set promises, on tiny fake releases in the official layouts."""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from fake_releases import RELEASES, Release, write_csv, write_wav
from typer.testing import CliRunner

from residual_audio.cli import datasets as command
from residual_audio.data.base import Dataset
from residual_audio.data.check import check_dataset
from residual_audio.data.registry import dataset_card, dataset_names, load_dataset, parse_name
from residual_audio.errors import AudioError, DatasetError, InputError

ON_DISK = sorted(RELEASES)


@pytest.fixture(params=ON_DISK)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Release]:
    return request.param, tmp_path, RELEASES[request.param](tmp_path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command.app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_every_data_set_has_a_release_to_test_it_on() -> None:
    assert {*dataset_names()} == {*RELEASES, "synthetic"}


@pytest.mark.parametrize("name", dataset_names())
def test_card_says_what_a_user_needs(name: str) -> None:
    card = dataset_card(name)
    assert card.name == name
    assert all((card.title, card.licence, card.layout, card.download, card.group))
    if name not in ("synthetic", "folder", "manifest"):
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


def test_esc50_captions_join_by_name_whatever_the_suffix(tmp_path: Path) -> None:
    esc50 = RELEASES["esc50"](tmp_path)
    table = tmp_path / "said.csv"
    rows = [["1-1100-A-0.ogg", "A dog barks", ""], ["9-9-A-0.ogg", "Nobody", "there"]]
    write_csv(table, ["filename", "caption_1", "caption_2"], rows)
    data = load_dataset("esc50", tmp_path, captions=table)
    assert len(data) == esc50.n_clips
    said = data.select(captioned=True)
    assert [(c.id, c.captions) for c in said.clips] == [("1-1100-A-0.wav", ("A dog barks",))]
    assert list(data.ignored) == ["9-9-A-0"]
    write_csv(table, ["filename", "title"], [["1-1100-A-0.wav", "rose_bark.wav"]])
    assert load_dataset("esc50", tmp_path, captions=table).select(captioned=True).clips[0].captions
    write_csv(table, ["filename", "words"], [["1-1100-A-0.wav", "x"]])
    with pytest.raises(DatasetError, match="found: filename, words"):
        load_dataset("esc50", tmp_path, captions=table)


def test_esc50_labels_and_groups(tmp_path: Path) -> None:
    RELEASES["esc50"](tmp_path)
    data = load_dataset("esc50", tmp_path)
    assert data.classes == ("dog", "washing machine")
    assert data.prompts() == ("This is a sound of dog.", "This is a sound of washing machine.")
    assert {c.group for c in data.clips if c.id.startswith("1-1100-")} == {"1100"}


def test_esc50_reencoded_release_is_found(tmp_path: Path) -> None:
    release = RELEASES["esc50"](tmp_path)
    old = tmp_path / release.drop
    old.unlink()
    write_wav(old.with_suffix(".flac"))
    data = load_dataset("esc50", tmp_path)
    assert not data.missing
    assert next(c for c in data.clips if c.id == release.drop_id).path == old.with_suffix(".flac")


def test_folder_groups_and_loose_files(tmp_path: Path) -> None:
    RELEASES["folder"](tmp_path)
    write_wav(tmp_path / "loose.wav")
    data = load_dataset("folder", tmp_path, group=r"([ab])\.")
    assert data.ignored == {"empty": "no audio files in it", "loose.wav": "not in a class folder"}
    assert {c.id: c.group for c in data.clips}["rain/deep/er/b.flac"] == "b"
    assert data.classes == ("Türe", "rain", "washing machine")
    with pytest.raises(InputError, match="not a regular expression"):
        load_dataset("folder", tmp_path, group="(")
    flat = tmp_path / "flat"
    write_wav(flat / "x.wav")
    assert [c.label for c in load_dataset("folder", flat).clips] == [None]
    (tmp_path / "rain" / "loop").symlink_to(tmp_path / "rain")
    assert len(load_dataset("folder", tmp_path)) == 5  # four, and flat/x.wav; the loop adds none


def _manifest(root: Path, *paths: str) -> Dataset:
    write_csv(root / "manifest.csv", ["path"], [[path] for path in paths])
    return load_dataset("manifest", root)


def test_manifest_refuses_to_leave_the_root(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    write_wav(root / "in.wav")
    write_wav(out / "secret.wav")
    (root / "link.wav").symlink_to(out / "secret.wav")
    (root / "linked").symlink_to(out)
    (root / "fine.wav").symlink_to(root / "in.wav")
    for path in ("../out/secret.wav", str(out / "secret.wav"), "link.wav", "linked/secret.wav"):
        with pytest.raises(DatasetError, match="outside"):
            _manifest(root, "in.wav", path)
        data = load_dataset("manifest", root, allow_outside=True)
        assert len(data.read(data.clips[1], 8000)) == 800
        with pytest.raises(DatasetError, match="outside"):
            run("check", "manifest", "--root", str(root))
        assert run("check", "manifest", "--root", str(root), "--allow-outside")[0] == 0
    assert not _manifest(root, "fine.wav", "./x/../in.wav").missing
    # found only by another suffix, and that is a link out
    (root / "other.flac").symlink_to(out / "secret.wav")
    with pytest.raises(DatasetError, match="leaves"):
        _manifest(root, "other.wav")


def test_manifest_jsonl_and_rows_that_make_no_sense(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    table = tmp_path / "list.jsonl"
    table.write_text(
        '{"path": "a.wav", "label": "rain", "captions": ["one", "two"], "fold": 3, "group": 7}\n\n'
        '{"path": "gone.wav"}\n',
        encoding="utf-8-sig",
    )
    data = load_dataset("manifest", table)
    first, second = data.clips
    assert (first.label, first.captions, first.fold, first.group) == (
        "rain",
        ("one", "two"),
        3,
        "7",
    )
    assert (second.label, second.fold, second.group) == (None, None, "gone.wav")
    assert list(data.missing) == ["gone.wav"]
    table.write_text('{"path": "a.wav"}\n{"path": ')
    with pytest.raises(DatasetError, match="line 2 is not JSON"):
        load_dataset("manifest", table)
    table.write_text('{"file": "a.wav"}')
    with pytest.raises(DatasetError, match="row 1 has no path; it has: file"):
        load_dataset("manifest", table)
    table.write_text('{"path": "a.wav"}\n{"path": "a.wav"}')
    with pytest.raises(DatasetError, match="rows 1 and 2 have the same path"):
        load_dataset("manifest", table)
    elsewhere = tmp_path / "tables" / "t.csv"
    write_csv(elsewhere, ["path"], [["a.wav"]])
    assert not load_dataset("manifest", tmp_path, table=elsewhere).missing


def test_tinysol_keeps_shifted_notes_with_their_source(tmp_path: Path) -> None:
    RELEASES["tinysol"](tmp_path)
    data = load_dataset("tinysol", tmp_path)
    groups = {c.id.rpartition("/")[2]: c.group for c in data.clips}
    assert groups["BTb-ord-G1-pp-N-R100u.wav"] == groups["BTb-ord-F#1-pp-N-N.wav"]
    assert groups["ClBb-ord-C#3-mf-N-T3u_R100d.wav"] == groups["ClBb-ord-D3-mf-N-N.wav"]
    assert groups["BTb-ord-G1-ff-N-T5d.wav"] != groups["BTb-ord-G1-pp-N-R100u.wav"]
    assert data.classes == ("bass tuba", "clarinet in B-flat")
    assert check_dataset(data).n_torn_groups == 1


def test_clotho_keeps_the_space(tmp_path: Path) -> None:
    RELEASES["clotho"](tmp_path)
    data = load_dataset("clotho:split=development", tmp_path)
    assert data.clips[0].id == "development/ Ambience Birds.wav"
    assert data.clips[0].path is not None
    assert data.clips[0].path.name == " Ambience Birds.wav"
    assert len(data.clips[0].captions) == 5
    data.clips[0].path.rename(tmp_path / "development" / "Ambience Birds.wav")
    assert not load_dataset("clotho", tmp_path).missing


def test_audiocaps_gathers_captions(tmp_path: Path) -> None:
    RELEASES["audiocaps"](tmp_path)
    data = load_dataset("audiocaps", tmp_path, split="val")
    assert [len(c.captions) for c in data.clips] == [5]


def test_compa_triplets_and_half_given_ones(tmp_path: Path) -> None:
    RELEASES["compa-order"](tmp_path)
    assert [len(pair.clips) for pair in load_dataset("compa-order", tmp_path).pairs] == [2, 3]
    table = tmp_path / "CompA_order_benchmark.csv"
    table.write_text(table.read_text().replace("C while D", "-"))
    with pytest.raises(DatasetError, match="item 2: triplet needs a caption and a file"):
        load_dataset("compa-order", tmp_path)


def test_vocalsound_speaker_in_two_splits_is_refused(tmp_path: Path) -> None:
    RELEASES["vocalsound"](tmp_path)
    path = tmp_path / "vs_release_44k/datafiles/val.json"
    path.write_text(json.dumps({"data": [{"wav": "m0004_0_sniff.wav"}]}))
    with pytest.raises(DatasetError, match="another split"):
        load_dataset("vocalsound", tmp_path)


# real recordings


def test_real_tinysol(shared_dir: Path) -> None:
    data = load_dataset("tinysol", shared_dir / "reference" / "tinysol")
    assert len(data) == 2913
    assert len(data.classes) == 14
    there = [clip for clip in data.clips if clip.id not in data.missing]
    assert sorted(clip.label or "" for clip in there) == ["contrabass", "flute"]
    assert all(len(data.read(clip, 16_000)) > 16_000 for clip in there)
    report = check_dataset(data)
    assert (report.n_usable, len(report.problems), report.counts) == (2, 2911, ())
    # each of the 40 notes made by a semitone shift finds the recording it was made from
    sizes: dict[str | None, int] = {}
    for clip in data.clips:
        sizes[clip.group] = sizes.get(clip.group, 0) + 1
    shifted = [clip for clip in data.clips if clip.id.endswith(("R100u.wav", "R100d.wav"))]
    assert len(shifted) == 40
    assert min(sizes[clip.group] for clip in shifted) == 2


def test_real_esc50(shared_dir: Path) -> None:
    said = shared_dir / "data/captions/esc50_clotho_captions.csv"
    data = load_dataset("esc50", shared_dir / "data/esc50-folds1-4", captions=said)
    assert (len(data), len(data.classes), len(data.missing), len(data.ignored)) == (1600, 50, 0, 0)
    assert len(data.select(captioned=True)) == 141
    assert all(len(c.captions) == 5 for c in data.select(captioned=True).clips)
    part = data.select(folds=[4], limit=50)
    assert len({clip.label for clip in part.clips}) == 50
    assert {clip.fold for clip in part.clips} == {4}
    assert abs(len(data.read(part.clips[0], 32_000)) - 160_000) < 2000
    report = check_dataset(data)
    assert not report.complete
    assert [(c.name, c.found, c.expected) for c in report.counts] == [("5", 0, 400)]


def test_real_orchestra_and_captions(shared_dir: Path) -> None:
    data = load_dataset("orchestra", shared_dir / "data/orchestra-vsco2")
    assert check_dataset(data).complete
    assert len(data.classes) == 15
    clotho = load_dataset("clotho", shared_dir / "data/captions")
    assert len(clotho) == 3839 + 1045 == len(clotho.missing)
    assert sum(clip.id.partition("/")[2].startswith(" ") for clip in clotho.clips) == 3
    caps = load_dataset("audiocaps", shared_dir / "data/captions")
    assert Counter(clip.fold for clip in caps.clips) == {1: 49838, 2: 495}
