"""Sounds made on demand from a seed: labelled clips, and compositional pairs whose truth is known.

Nothing is stored: a clip is its place in the sequence, so any number of clips costs no memory. The
same seed gives the same bytes everywhere (see `draws`, and `scene.on_grid`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np

from residual_audio.data.base import Card, Dataset, Pair, Wave
from residual_audio.data.draws import Array, Draws
from residual_audio.data.hashed import Part, check_part, pair_is_in
from residual_audio.data.sounds import ALL, RATE_HZ, VERSION, Sound
from residual_audio.data.sounds.kit import fade, samples
from residual_audio.data.sounds.scene import Scene, describe, level, on_grid, qualified
from residual_audio.data.wordings import ATTRIBUTES, frames_for, tell
from residual_audio.errors import InputError
from residual_audio.types import Clip

N_FOLDS, TAKES = 5, 4
"""Folds, and clips of one source (this bell, this dog)."""
PITCH, PACE, LOUDER_DB = 1.8, 1.7, 16.0
"""How far apart the two ends of an attribute are: factors up and down, and decibels."""

ORDERS = (
    "{0} and then {1}",
    "{0} followed by {1}",
    "first {0}, then {1}",
    "{0} before {1}",
    "{1} after {0}",
    "{0}, and {1} afterwards",
)
TOGETHER = ("{0} while {1} is heard", "{0} together with {1}", "{0} and {1} at the same time")
BOTH = ("{0} and {1}", "{0} along with {1}", "there is {0} and there is {1}")

CARD = Card(
    name="synthetic",
    title="Procedural sounds, made on demand",
    task="labels, captions or pairs",
    licence="CC0 1.0: made by this package",
    citation="",
    url="",
    layout="no files",
    download="Nothing to download: the sounds are made from a seed.",
    n_classes=len(ALL),
    group=f"one source (this bell, this dog): {TAKES} clips share its parameters",
    options={
        "n_clips": "how many clips (compositional kinds: rounded up to whole items)",
        "seed": "seed of everything; clips of different seeds have different sources",
        "duration_s": "length of a clip in seconds (5)",
        "kind": "classes, order or attribute",
        "classes": "only these classes (kind classes)",
        "triplets": "a third clip an item, both sounds at once (kind order)",
        "class_pairs": "all, train or held-out: a fifth of the class pairs is never trained on "
        "(kinds order and attribute)",
        "wording": "of pairs: plain, many, more, grammar, choosing, held-out, unordered, or a "
        "frame: '{1} preceded by {0}' (without it, much like plain)",
    },
)

Kind = Literal["classes", "order", "attribute"]


@dataclass(frozen=True)
class Maker:
    """The recipe of one synthetic data set: place in the sequence → clip, caption, sound."""

    kind: Kind
    seed: int
    n: int
    """Samples of a clip at 32 kHz."""
    sounds: tuple[Sound, ...] = ALL
    sides: int = 1
    """Clips of one item: 1, or 2 and 3 for pairs and triplets."""
    class_pairs: Part = "all"
    wording: str = ""

    def clip(self, index: int) -> Clip:
        if self.kind == "classes":
            return self._labelled(index)[0]
        return self.pair(index // self.sides).clips[index % self.sides]

    def wave(self, clip: Clip, sample_rate_hz: int) -> Wave:
        made = self._sound(int(clip.id.split("-", 1)[0]), clip.id)
        if sample_rate_hz == RATE_HZ:
            return made
        import soxr

        return on_grid(soxr.resample(made.astype(np.float64), RATE_HZ, sample_rate_hz, "HQ"))

    def _sound(self, index: int, clip_id: str) -> Wave:
        if self.kind == "classes":
            _, sound, scene, pitch, pace = self._labelled(index)
            own = Draws(self.seed, "own", sound.label, self._source(index))
            take = Draws(self.seed, "take", index)
            return scene.place(self._timed(sound, own, take, pitch, pace), take)
        side = "abc".index(clip_id.rsplit("-", 1)[1])
        return self._ordered(index, side) if self.kind == "order" else self._mixed(index, side)

    # one labelled clip

    def _source(self, index: int) -> int:
        # five sources take turns, so that every fifth of the clips is a fold of its own sources
        turn = index // len(self.sounds)
        return turn // (N_FOLDS * TAKES) * N_FOLDS + turn % N_FOLDS

    def _labelled(self, index: int) -> tuple[Clip, Sound, Scene, float, float]:
        sound = self.sounds[index % len(self.sounds)]
        source = self._source(index)
        draws = Draws(self.seed, "clip", index)
        scene = Scene.draw(draws)
        pitch, pace, manner = draws.ratio(1.1), draws.ratio(1.15), []
        if sound.pitched and draws.chance(0.2):
            high = draws.chance(0.5)
            pitch, manner = PITCH if high else 1 / PITCH, ["high" if high else "low"]
        if sound.paced and draws.chance(0.2):
            fast = draws.chance(0.5)
            pace, manner = PACE if fast else 1 / PACE, [*manner, "fast" if fast else "slow"]
        clip = Clip(
            id=f"{index:07d}-{sound.label.replace(' ', '-')}",
            label=sound.label,
            captions=describe(sound, scene, manner, draws),
            fold=source % N_FOLDS + 1,
            group=f"{sound.label}/{source:05d}",
        )
        return clip, sound, scene, pitch, pace

    def _timed(self, sound: Sound, own: Draws, take: Draws, pitch: float, pace: float) -> Array:
        """The sound, in one clip of three only during a part of it."""
        if not take.chance(0.33):
            return sound.make(own, take, self.n, pitch, pace)
        m = round(self.n * take.between(0.5, 0.9))
        at = round((self.n - m) * take.unit())
        out = np.zeros(self.n)
        out[at : at + m] = sound.make(own, take, m, pitch, pace) * fade(m, 0.02, 0.05)
        return out

    # one compositional item

    def pair(self, item: int) -> Pair:
        first, second = self._two(item)
        draws = Draws(self.seed, self.kind, item, "words")
        if self.wording:
            attribute = self._attribute(item) if self.kind == "attribute" else ""
            names = (first.noun,), (second.noun,)
            said = [list(t) for t in tell(self.kind, attribute, self.wording, names, draws, 4)]
        elif self.kind == "order":
            nouns = (first.noun, second.noun)
            frames = draws.some(ORDERS, 4)
            said = [
                [frame.format(*nouns) for frame in frames],
                [frame.format(*nouns[::-1]) for frame in frames],
                [frame.format(*nouns) for frame in draws.some(TOGETHER, 3)],
            ]
        else:
            words = ATTRIBUTES[self._attribute(item)]
            frames = draws.some(BOTH, 3)
            said = [
                [
                    frame.format(qualified(first.noun, w), qualified(second.noun, v))
                    for frame in frames
                ]
                for w, v in (words, words[::-1])
            ]
        captions = [tuple(s[0].upper() + s[1:] for s in some) for some in said[: self.sides]]
        clips = tuple(
            Clip(
                id=f"{item:07d}-{self.kind}-{'abc'[side]}",
                captions=captions[side],
                group=f"{item:07d}",
            )
            for side in range(self.sides)
        )
        return Pair(f"{item:07d}", tuple(c[0] for c in captions), clips)

    def _two(self, item: int) -> tuple[Sound, Sound]:
        draws = Draws(self.seed, self.kind, item, "which")
        while True:
            first, second = draws.some(self.sounds, 2)
            if pair_is_in(first.label, second.label, self.class_pairs):
                return first, second

    def _attribute(self, item: int) -> str:
        first, second = self._two(item)
        fit = ["loudness"]
        fit += ["pitch"] if first.pitched and second.pitched else []
        fit += ["pace"] if first.paced and second.paced else []
        return Draws(self.seed, self.kind, item, "attribute").pick(fit)

    def _part(self, item: int, k: int, m: int, pitch: float = 1.0, pace: float = 1.0) -> Array:
        """Sound k of an item, the same in every clip of it but for pitch and pace."""
        sound = self._two(item)[k]
        own, take = (Draws(self.seed, self.kind, item, k, name) for name in ("own", "take"))
        return level(sound.make(own, take, m, pitch, pace) * fade(m, 0.01, 0.05))

    def _ordered(self, item: int, side: int) -> Wave:
        draws = Draws(self.seed, self.kind, item, "scene")
        scene, m = Scene.draw(draws), round(self.n * draws.between(0.44, 0.5))
        parts = [self._part(item, k, m) for k in range(2)]
        out = np.zeros(self.n)
        if side == 2:
            at = (self.n - m) // 2
            out[at : at + m] = parts[0] + parts[1]
        else:
            before, after = parts if side == 0 else parts[::-1]
            out[:m] += before
            out[self.n - m :] += after
        return scene.place(out, draws)

    def _mixed(self, item: int, side: int) -> Wave:
        draws = Draws(self.seed, self.kind, item, "scene")
        scene, m = Scene.draw(draws), round(self.n * draws.between(0.55, 0.75))
        early = draws.count(0, 1)
        attribute = self._attribute(item)
        out = np.zeros(self.n)
        for k in range(2):
            up = (
                k == side
            )  # "loud" belongs to the first sound of the pair, the second of the reverse
            factor = {"pitch": PITCH, "pace": PACE}.get(attribute, 1.0) ** (1 if up else -1)
            part = self._part(
                item,
                k,
                m,
                pitch=factor if attribute == "pitch" else 1.0,
                pace=factor if attribute == "pace" else 1.0,
            )
            if attribute == "loudness" and not up:
                part = part * 10.0 ** (-LOUDER_DB / 20.0)
            at = 0 if k == early else self.n - m
            out[at : at + m] += part
        return scene.place(out, draws)


@dataclass(frozen=True)
class MadeClips(Sequence[Clip]):
    """Clips made when asked for."""

    maker: Maker
    n_clips: int

    def __len__(self) -> int:
        return self.n_clips

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Clip, ...]: ...
    def __getitem__(self, index: int | slice) -> Clip | tuple[Clip, ...]:
        at = range(self.n_clips)[index]
        if isinstance(at, range):
            return tuple(self.maker.clip(i) for i in at)
        return self.maker.clip(at)

    def __iter__(self) -> Iterator[Clip]:
        return map(self.maker.clip, range(self.n_clips))


@dataclass(frozen=True)
class MadePairs(Sequence[Pair]):
    """Compositional items made when asked for."""

    maker: Maker
    n_pairs: int

    def __len__(self) -> int:
        return self.n_pairs

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Pair, ...]: ...
    def __getitem__(self, index: int | slice) -> Pair | tuple[Pair, ...]:
        at = range(self.n_pairs)[index]
        if isinstance(at, range):
            return tuple(self.maker.pair(i) for i in at)
        return self.maker.pair(at)


def load(
    n_clips: int = 410,
    seed: int = 0,
    duration_s: float = 5.0,
    kind: Kind = "classes",
    classes: str | Iterable[str] | None = None,
    triplets: bool = False,
    class_pairs: str = "all",
    wording: str = "",
) -> Dataset:
    """Procedural sounds; see `CARD.options`."""
    if kind not in ("classes", "order", "attribute"):
        raise InputError(f"synthetic has no kind '{kind}'; there are: classes, order, attribute")
    if n_clips < 1:
        raise InputError(f"{n_clips} synthetic clips make no sense: give 1 or more")
    if not 1.0 <= duration_s <= 600.0:
        raise InputError(f"synthetic clips of {duration_s} s: give 1 to 600 seconds")
    if triplets and kind != "order":
        raise InputError(f"synthetic has triplets for kind order only, not for kind {kind}")
    sounds = ALL if classes is None else _chosen(classes)
    part = check_part(class_pairs, "class_pairs")
    _check_pairs(kind, sounds, triplets, part, wording)
    sides = 1 if kind == "classes" else 3 if triplets else 2
    maker = Maker(kind, seed, samples(duration_s), sounds, sides, part, wording)
    items = -(-n_clips // sides)
    return Dataset(
        name="synthetic",
        root=None,
        clips=MadeClips(maker, items * sides),
        classes=tuple(sound.label for sound in sounds) if kind == "classes" else (),
        card=CARD,
        pairs=MadePairs(maker, items) if sides > 1 else (),
        folds={i: str(i) for i in range(1, N_FOLDS + 1)} if kind == "classes" else {},
        recipe=(
            f"version={VERSION} kind={kind} seed={seed} samples={maker.n} sides={sides} "
            f"classes={','.join(sound.label for sound in sounds)}"
            + (f" class_pairs={part}" if part != "all" else "")
            + (f" wording={wording}" if wording else "")
        ),
        make=maker.wave,
    )


def _check_pairs(
    kind: Kind, sounds: Sequence[Sound], triplets: bool, part: Part, wording: str
) -> None:
    if kind == "classes":
        if part != "all" or wording:
            raise InputError("class_pairs and wording are for the kinds order and attribute")
        return
    labels = [sound.label for sound in sounds]
    if not any(pair_is_in(a, b, part) for i, a in enumerate(labels) for b in labels[i + 1 :]):
        raise InputError(
            f"kind {kind} needs at least two classes that may stand together, not "
            f"{len(sounds)} (class_pairs={part})"
        )
    if wording and triplets:
        raise InputError("a wording is for pairs: triplets have captions of their own")
    if wording not in ("", "unordered"):
        frames_for(kind, "loudness", wording)


def _chosen(classes: str | Iterable[str]) -> tuple[Sound, ...]:
    names = classes.split(",") if isinstance(classes, str) else list(classes)
    wanted = {name.strip() for name in names}
    known = {sound.label for sound in ALL}
    if unknown := sorted(wanted - known):
        raise InputError(
            f"synthetic has no class '{unknown[0]}'; it has: {', '.join(sorted(known))}"
        )
    return tuple(sound for sound in ALL if sound.label in wanted)
