"""What is particular to one data set: joins, groups, refusals; real releases where they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from fake_releases import RELEASES, run, write_csv, write_wav

from residual_audio.data.base import Dataset
from residual_audio.data.check import check_dataset
from residual_audio.data.registry import load_dataset
from residual_audio.errors import DatasetError, InputError


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
