"""Tiny fake releases in the official layouts, with the awkward names that real ones have."""

from __future__ import annotations

import csv
import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from typer.testing import CliRunner

from residual_audio.cli import datasets as command


def write_wav(path: Path, n: int = 800, rate_hz: int = 8000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = 0.1 * np.sin(np.arange(n) * (0.01 + 0.001 * len(path.name)))
    suffix = path.suffix.lower()
    soundfile.write(path, wave, rate_hz, format={".ogg": "OGG", ".flac": "FLAC"}.get(suffix, "WAV"))


def write_csv(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]], bom: bool = False
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8-sig" if bom else "utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def run(*arguments: str) -> tuple[int, str]:
    """`residual-audio datasets …`: exit code and what was printed."""
    result = CliRunner().invoke(command.app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@dataclass
class Release:
    """A fake release and what a loader must find in it."""

    table: str | None
    """The metadata file, below the root; None where there is none."""
    n_clips: int
    n_classes: int
    drop: str
    """A clip's file, to be removed in the test of missing files."""
    drop_id: str
    groups: int
    folds: dict[int, str] = field(default_factory=dict)
    n_pairs: int = 0
    counts_only: bool = False
    """Files are not listed anywhere: a missing one cannot be named."""


def esc50(root: Path) -> Release:
    names = [
        (f, s, t, c) for f in (1, 2) for s, t, c in ((100, 0, "dog"), (200, 35, "washing_machine"))
    ]
    rows = []
    for fold, source, target, category in names:
        for take in "AB":
            name = f"{fold}-{fold}{source}-{take}-{target}.wav"
            write_wav(root / "ESC-50-master" / "audio" / name)
            rows.append([name, fold, target, category, False, f"{fold}{source}", take])
    header = ["filename", "fold", "target", "category", "esc10", "src_file", "take"]
    write_csv(root / "ESC-50-master/meta/esc50.csv", header, rows)
    drop = "ESC-50-master/audio/1-1100-A-0.wav"
    folds = {1: "1", 2: "2"}
    return Release("ESC-50-master/meta/esc50.csv", 8, 2, drop, "1-1100-A-0.wav", 4, folds)


def urbansound8k(root: Path) -> Release:
    rows = []
    for fold, source, target, name in ((1, 100, 3, "dog_bark"), (2, 200, 8, "siren")):
        for k in range(2):
            file = f"{source}-{target}-0-{k}.wav"
            write_wav(root / f"UrbanSound8K/audio/fold{fold}/{file}")
            rows.append([file, source, 0.0, 0.1, 1, fold, target, name])
    header = ["slice_file_name", "fsID", "start", "end", "salience", "fold", "classID", "class"]
    table = "UrbanSound8K/metadata/UrbanSound8K.csv"
    write_csv(root / table, header, rows)
    drop = "UrbanSound8K/audio/fold1/100-3-0-0.wav"
    return Release(table, 4, 2, drop, "100-3-0-0.wav", 2, {1: "1", 2: "2"})


def orchestra(root: Path) -> Release:
    rows = []
    for i, (instrument, pitch) in enumerate(
        [("french horn", "C4"), ("french horn", "A#4"), ("harp", "C4")]
    ):
        for rr in range(2):
            name = f"{instrument.replace(' ', '-')}-{i}{rr}.ogg"
            write_wav(root / "audio" / name)
            rows.append(
                [name, instrument, "f", "sus", pitch, f"{instrument}|sus|{pitch}", i + 1, "x"]
            )
    header = [
        "filename",
        "instrument",
        "family",
        "articulation",
        "pitch",
        "group",
        "fold",
        "source_path",
    ]
    write_csv(root / "metadata.csv", header, rows, bom=True)
    folds = {1: "1", 2: "2", 3: "3"}
    return Release("metadata.csv", 6, 2, "audio/harp-20.ogg", "harp-20.ogg", 3, folds)


def folder(root: Path) -> Release:
    for name in ("rain/a.wav", "rain/deep/er/b.flac", "washing_machine/#1 c.WAV", "rain/._a.wav"):
        write_wav(root / name)
    write_wav(root / unicodedata.normalize("NFD", "Türe/é.wav"))
    (root / "empty").mkdir()
    (root / "rain" / "notes.txt").write_text("not audio")
    return Release(None, 4, 3, "rain/a.wav", "rain/a.wav", 4, counts_only=True)


def manifest(root: Path) -> Release:
    names = ["a b/ x.wav", "#1.wav", "café.wav", "plain.wav"]
    for name in names:
        write_wav(root / unicodedata.normalize("NFD", name))
    rows = [
        [
            name,
            "tür" if i % 2 else "rain",
            f"caption {i}",
            "",
            "train" if i < 3 else "test",
            f"g{i // 2}",
        ]
        for i, name in enumerate(names)
    ]
    write_csv(
        root / "manifest.csv",
        ["path", "label", "caption_1", "caption_2", "fold", "group"],
        rows,
        bom=True,
    )
    return Release("manifest.csv", 4, 2, "plain.wav", "plain.wav", 2, {1: "train", 2: "test"})


def tinysol(root: Path) -> Release:
    header = [
        *("Path", "Fold", "Family", "Instrument (abbr.)", "Instrument (in full)"),
        *("Technique (abbr.)", "Technique (in full)", "Pitch", "Pitch ID"),
        *("Dynamics", "Dynamics ID", "Instance ID", "String ID (if applicable)"),
        "Needed digital retuning",
    ]
    tuba = ("Brass/Bass_Tuba", "BTb", "Bass Tuba")
    clarinet = ("Winds/Clarinet_Bb", "ClBb", "Clarinet in Bb")
    notes = [
        (tuba, "F#1", 30, "pp", "N", 2),
        (tuba, "G1", 31, "pp", "R100u", 4),
        (tuba, "G1", 31, "ff", "T5d", 0),
        (clarinet, "D3", 50, "mf", "N", 1),
        (clarinet, "C#3", 49, "mf", "T3u_R100d", 1),
    ]
    rows = []
    for (folder, abbr, full), pitch, number, dynamics, retuning, fold in notes:
        path = f"{folder}/ordinario/{abbr}-ord-{pitch}-{dynamics}-N-{retuning}.wav"
        write_wav(root / "audio" / path)
        family, technique = folder.partition("/")[0], ("ord", "ordinario")
        about = (pitch, number, dynamics, 0, 0, "", retuning != "N")
        rows.append([path, fold, family, abbr, full, *technique, *about])
    write_csv(root / "annotation/TinySOL_metadata.csv", header, rows)
    drop = "Brass/Bass_Tuba/ordinario/BTb-ord-G1-ff-N-T5d.wav"
    folds = {i: str(i) for i in (0, 1, 2, 4)}
    return Release("annotation/TinySOL_metadata.csv", 5, 2, f"audio/{drop}", drop, 3, folds)


def vocalsound(root: Path) -> Release:
    split = {
        "tr": ["f0001_0_cough", "f0001_1_sneeze", "m0002_0_throatclearing"],
        "val": ["f0003_0_sigh"],
        "te": ["m0004_0_sniff", "m0004_0_laughter"],
    }
    for short, names in split.items():
        data = [{"wav": f"/data/sls/authors/own/{name}.wav", "labels": "/m/x"} for name in names]
        path = root / "vs_release_44k/datafiles" / f"{short}{'_rev' if short == 'te' else ''}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"data": data}))
        for name in names:
            write_wav(root / "vs_release_44k/audio_44k" / f"{name}.wav")
    drop = "m0004_0_sniff.wav"
    folds = {1: "train", 2: "val", 3: "test"}
    return Release(
        "vs_release_44k/datafiles/tr.json", 6, 6, f"vs_release_44k/audio_44k/{drop}", drop, 4, folds
    )


def irmas(root: Path) -> Release:
    for name in (
        "cel/008__[cel][nod][cla]0058__1.wav",
        "cel/008__[cel][nod][cla]0058__2.wav",
        "cel/[cel][cla]0001__1.wav",
        "voi/[voi][pop_roc]1234__3.wav",
    ):
        write_wav(root / "IRMAS-TrainingData" / name)
    drop = "cel/[cel][cla]0001__1.wav"
    return Release(None, 4, 2, f"IRMAS-TrainingData/{drop}", drop, 3, counts_only=True)


def nsynth(root: Path) -> Release:
    for split, instruments in {
        "train": ["bass_synthetic_033"],
        "test": ["synth_lead_synthetic_000", "guitar_acoustic_010"],
    }.items():
        notes = {}
        for instrument in instruments:
            family = instrument.rsplit("_", 2)[0]
            for pitch in (22, 50):
                note = f"{instrument}-{pitch:03d}-100"
                notes[note] = {
                    "instrument_str": instrument,
                    "instrument_family_str": family,
                    "pitch": pitch,
                }
                write_wav(root / f"nsynth-{split}/audio/{note}.wav")
        (root / f"nsynth-{split}/examples.json").write_text(json.dumps(notes))
    drop = "guitar_acoustic_010-022-100"
    folds = {1: "train", 3: "test"}
    return Release(
        "nsynth-test/examples.json", 6, 3, f"nsynth-test/audio/{drop}.wav", f"test/{drop}", 3, folds
    )


def clotho(root: Path) -> Release:
    header = ["file_name", *(f"caption_{i}" for i in range(1, 6))]
    files = {
        "development": [" Ambience Birds.wav", "Crowd, eating #2.wav"],
        "evaluation": ["Ñandú.wav"],
    }
    for split, names in files.items():
        rows = [[name, *(f"{name} said {i}" for i in range(5))] for name in names]
        write_csv(root / f"clotho_captions_{split}.csv", header, rows)
        for name in names:
            folder = split if split == "development" else f"clotho_audio_{split}"
            write_wav(root / folder / unicodedata.normalize("NFD", name))
    drop = "development/Crowd, eating #2.wav"
    return Release(
        "clotho_captions_development.csv", 3, 0, drop, drop, 3, {1: "development", 3: "evaluation"}
    )


def audiocaps(root: Path) -> Release:
    header = ["audiocap_id", "youtube_id", "start_time", "caption"]
    write_csv(
        root / "dataset/train.csv",
        header,
        [[1, "-aBc_1", 30, "Rain"], [2, "xyz", 0, "A dog, barking"]],
    )
    write_csv(
        root / "dataset/val.csv", header, [[10 + i, "vvv", 5, f"Words {i}"] for i in range(5)]
    )
    for name in ("audio/train/Y-aBc_1.wav", "audio/xyz_0.wav", "val/vvv.wav"):
        write_wav(root / name)
    return Release(
        "dataset/train.csv", 3, 0, "audio/xyz_0.wav", "train/xyz_0", 3, {1: "train", 2: "val"}
    )


def compa_order(root: Path) -> Release:
    header = [
        "pair_caption",
        "reversed_pair_caption",
        "triplet_caption",
        "pair_file",
        "reversed_pair_file",
        "triplet_file",
    ]
    rows = [
        ["A then B", "B then A", "-", "1.wav", "1_rev.wav", "-"],
        ["C then D", "D then C", "C while D", "2.wav", "2_rev.wav", "2_trip.wav"],
    ]
    write_csv(root / "CompA_order_benchmark.csv", header, rows)
    for name in ("1.wav", "1_rev.wav", "2.wav", "2_rev.wav", "2_trip.wav"):
        write_wav(root / "CompA_order_files" / name)
    return Release(
        "CompA_order_benchmark.csv", 5, 0, "CompA_order_files/2_rev.wav", "2_rev.wav", 2, n_pairs=2
    )


def compa_attribute(root: Path) -> Release:
    # the released table carries the file columns twice; the second pair names the local files
    header = [
        "pair_caption",
        "reversed_pair_caption",
        "pair_file",
        "reversed_pair_file",
        "pair_file",
        "reversed_pair_file",
    ]
    rows = [
        [
            "an old man and a baby",
            "a baby man and an old",
            "Yabc.wav",
            "Ydef.wav",
            "1.wav",
            "1_rev.wav",
        ]
    ]
    write_csv(root / "Compa-Attribute.csv", header, rows)
    for name in ("1.wav", "1_rev.wav"):
        write_wav(root / "CompA_attribute_files" / name)
    return Release(
        "Compa-Attribute.csv", 2, 0, "CompA_attribute_files/1.wav", "1.wav", 1, n_pairs=1
    )


RELEASES: dict[str, Callable[[Path], Release]] = {
    "esc50": esc50,
    "urbansound8k": urbansound8k,
    "orchestra": orchestra,
    "folder": folder,
    "manifest": manifest,
    "tinysol": tinysol,
    "vocalsound": vocalsound,
    "irmas": irmas,
    "nsynth": nsynth,
    "clotho": clotho,
    "audiocaps": audiocaps,
    "compa-order": compa_order,
    "compa-attribute": compa_attribute,
}
