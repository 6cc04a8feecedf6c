"""What a training run is told: a recipe in TOML or JSON, checked before anything runs.

File names in a recipe are below the data root given to the command, so a recipe names no machine.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from residual_audio.errors import InputError
from residual_audio.files import parse_json


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextFile(_Strict):
    """Texts in columns of a CSV file; `where` keeps only rows with these values."""

    file: str
    columns: tuple[str, ...]
    where: dict[str, str] = Field(default_factory=dict)
    starts: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Keeps only rows whose value in a column starts with one of these."""
    key: str | None = None
    """Column whose value is the clip's file name, where the texts belong to clips."""
    kind: Literal["caption", "title"] = "caption"
    """A title is a file name: extension, digits and underscores are taken out."""


class Optimisation(_Strict):
    """AdamW (or Muon for the matrices), warm-up and cosine, clipping, moving average."""

    steps: int = Field(ge=1)
    batch_size: int = Field(default=32, ge=2)
    optimiser: Literal["adamw", "muon"] = "adamw"
    lr: float = Field(default=4e-4, gt=0)
    muon_lr: float = Field(default=0.02, gt=0)
    """Step size of the matrices under Muon; everything else stays with AdamW at `lr`."""
    weight_decay: float = Field(default=0.05, ge=0)
    betas: tuple[float, float] = (0.9, 0.98)
    warmup: float = Field(default=0.1, ge=0, le=1)
    """Share of the steps."""
    final: float = Field(default=0.01, ge=0, le=1)
    """Learning rate at the end, as a share of the highest."""
    clip: float = Field(default=1.0, gt=0)
    ema: float = Field(default=0.998, ge=0, lt=1)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 on a GPU, float32 elsewhere."""
    checkpoint_every: int = Field(default=200, ge=1)
    snapshots: int = Field(default=0, ge=0)
    """Weights kept along the way, for studies of how a model emerges."""


class TextRecipe(_Strict):
    """The text tower: its size, and how it learns from a sentence encoder."""

    vocabulary: int = Field(default=8000, ge=300)
    width: int = 256
    depth: int = 4
    n_heads: int = 4
    max_tokens: int = 48
    d_out: int = 256
    encoder: str | None = None
    """Sentence encoder to distil from; None: the tower is learned with the audio, from nothing."""
    even: float = Field(default=0.5, ge=0, le=1)
    """How much the teacher's spectrum is evened out (0 not at all, 1 whitened)."""
    corpus: tuple[TextFile, ...] = ()
    hold_out: tuple[TextFile, ...] = ()
    """Texts that must not be learned: those the model will be measured on."""
    phrases: int = Field(default=0, ge=0)
    """How many short phrases are cut out of the captions."""
    n_texts: int = Field(default=0, ge=0)
    """How many texts of the corpus are learned, besides the clips' own; 0 for all."""
    own_share: float = Field(default=0.25, ge=0, le=1)
    """Share of each batch that is class prompts and the clips' own texts."""
    relational: float = Field(default=1.0, ge=0)
    """Weight of matching the teacher's similarities between the texts of a batch."""
    optimisation: Optimisation = Optimisation(steps=1000, batch_size=256, lr=1e-3)


class DataRecipe(_Strict):
    """Clips of one data set."""

    dataset: str
    root: str | None = None
    folds: tuple[int, ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)
    share: float = Field(default=1.0, gt=0)
    """Share of each batch, relative to the other data sets."""
    texts: tuple[TextFile, ...] = ()


class PairData(_Strict):
    """Compositional pairs of one data set."""

    dataset: str
    root: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    share: float = Field(default=1.0, gt=0)
    """Share of the items of each step, relative to the other data sets."""
    begins: float = Field(default=0.0, ge=0, lt=1)
    """Share of the steps after which these pairs come in: plain ones can be learned first."""


class Distillation(_Strict):
    """Vectors of another audio model for the clips: regression to its embedding and its logits."""

    file: str
    names: str = "files"
    embedding: str | None = "embedding"
    logits: str | None = "audioset_logits"
    embedding_weight: float = Field(default=1.0, ge=0)
    logits_weight: float = Field(default=5.0, ge=0)


class Augmentation(_Strict):
    """Changes of the log-mel in training. 0 switches one off."""

    shift: bool = True
    """Roll in time by any amount."""
    gain_db: float = Field(default=6.0, ge=0)
    tilt_db: float = Field(default=4.0, ge=0)
    """Spectral tilt, at the band edges."""
    speed: float = Field(default=0.15, ge=0, lt=1)
    pitch: int = Field(default=2, ge=0)
    """Shift in mel bands."""
    noise: float = Field(default=0.3, ge=0, le=1)
    """Share of clips that get noise, 5 to 30 dB below them."""
    mix: float = Field(default=0.3, ge=0, le=1)
    """Share of clips mixed with another of the batch."""
    cut: float = Field(default=0.0, ge=0, le=1)
    """Share of clips continued by another of the batch."""
    time_mask: int = Field(default=60, ge=0)
    mel_mask: int = Field(default=14, ge=0)
    masks: int = Field(default=2, ge=0)


class Tracking(_Strict):
    """What is looked at while the model learns."""

    every: int = Field(default=0, ge=0)
    """Steps between looks; 0 for none."""
    n_clips: int = Field(default=200, ge=8)


class AudioRecipe(_Strict):
    """The audio side and the contrastive training."""

    front_end: str = "nano"
    front_end_options: dict[str, Any] = Field(default_factory=dict)
    """Settings laid over the named front-end."""
    encoder: dict[str, Any] = Field(default_factory=dict)
    """Settings of HTS-AT."""
    head: Literal["linear", "mlp"] = "mlp"
    d_hidden: int = 384
    objective: Literal["contrastive", "labels"] = "contrastive"
    """labels: class labels alone, no text; for comparison. The model is then one of audio alone."""
    data: tuple[DataRecipe, ...] = ()
    templates: tuple[str, ...] = ("This is a sound of {}.",)
    own_text: float = Field(default=0.5, ge=0, le=1)
    """Share of clips paired with a caption or title of their own instead of a class prompt."""
    temperature: float = Field(default=0.07, gt=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    validation: float = Field(default=0.0, ge=0, lt=1)
    """Share of the groups kept out to choose settings by."""
    pairs_weight: float = Field(default=0.5, ge=0)
    """Weight of the symmetric loss between clips and their own texts."""
    classes_weight: float = Field(default=1.0, ge=0)
    """Weight of the loss of clips against one prompt of every class."""
    text_lr: float = Field(default=1.0, ge=0)
    """Learning rate of the text tower relative to the audio side, where there is no sentence
    encoder to stand in for it; 0 freezes it."""
    text_anchor: float = Field(default=1.0, ge=0)
    """Weight of keeping text vectors near where the sentence encoder put them."""
    distil: Distillation | None = None
    augment: Augmentation = Augmentation()
    track: Tracking = Tracking()
    optimisation: Optimisation = Optimisation(steps=1000)


class TuneRecipe(_Strict):
    """A last stage in which both sides, each trained against the sentence encoder, meet."""

    text_lr: float = Field(default=0.3, ge=0)
    optimisation: Optimisation


class ComposeRecipe(_Strict):
    """A stage that teaches composition: ordinary batches beside pairs with exchanged captions."""

    start: str | None = None
    """A model folder to begin with, instead of what the stages before made."""
    data: tuple[PairData, ...] = Field(min_length=1)
    told: bool = True
    """False: captions name both sounds and tell neither order nor attribute. Such a model differs
    from its twin in nothing but whether it was taught to compose."""
    validation: tuple[PairData, ...] = ()
    """Pairs that are only looked at: settings are chosen on them."""
    items: int = Field(default=16, ge=1)
    """Items of each step, two clips each, beside the clips of the ordinary batch."""
    captions: int = Field(default=2, ge=1)
    """Captions of each clip in a step, in different wordings."""
    contrast_weight: float = Field(default=0.5, ge=0)
    """Weight of the symmetric loss among all clips and captions of the pairs."""
    exchanged_weight: float = Field(default=1.0, ge=0)
    """Weight of own against exchanged caption, and own against exchanged clip."""
    spread_weight: float = Field(default=0.0, ge=0)
    """Weight of spreading captions over the sphere."""
    centroid_weight: float = Field(default=0.0, ge=0)
    """Weight of taking out what all captions have in common."""
    text_lr: float = Field(default=1.0, gt=0)
    ordinary_weight: float = Field(default=0.0, ge=0)
    """Weight of everything the audio stage learns by, on the ordinary batch; 0: its clips and texts
    are only held where they were."""
    audio_anchor: float = Field(default=2.0, ge=0)
    """Weight of keeping ordinary clips where they were before this stage."""
    text_anchor: float = Field(default=2.0, ge=0)
    """Weight of keeping class prompts and clips' own texts where they were before this stage."""
    frozen: tuple[str, ...] = ()
    """Beginnings of the names of parameters that stay as they are: `encoder.stages.0` …"""
    augment: Augmentation | None = None
    """Of the ordinary batches; None: as in the audio stage, but nothing is mixed, since two sounds
    at once or in turn are not to be held where they were. Of pairs, only gain and tilt vary."""
    optimisation: Optimisation


class WordingRecipe(_Strict):
    """A last stage in which the text side alone learns many wordings; the audio side is frozen."""

    start: str | None = None
    """A model folder that hears order and attributes (`nano`: the bundled one), instead of what the
    stages before made."""
    held_to: str | None = None
    """A model folder with the text side that single sounds and other captions are held to, instead
    of the one before composition, or of `start` where the run begins with it."""
    data: tuple[PairData, ...] = Field(min_length=1)
    validation: tuple[PairData, ...] = ()
    """Pairs that are only looked at: settings are chosen on them."""
    hold_out: tuple[TextFile, ...] = ()
    """Captions that are not held either, beside those the text stage leaves out: what becomes of
    them can be looked at."""
    items: int = Field(default=16, ge=1)
    captions: int = Field(default=3, ge=1)
    kept: int = Field(default=64, ge=1)
    """Class prompts and captions of each step that are held where they were."""
    plain_weight: float = Field(default=1.0, ge=0)
    """Weight of going where the plain wordings went."""
    contrast_weight: float = Field(default=0.5, ge=0)
    exchanged_weight: float = Field(default=1.0, ge=0)
    anchor: float = Field(default=4.0, ge=0)
    """Weight of what holds prompts and captions."""
    relational: float = Field(default=0.5, ge=0)
    """How much of that is for the similarities among them."""
    lexicon: str | None = None
    """A sentence encoder (a folder, or a package that carries one) whose knowledge of single words
    is lent to the tower; see `training/lexicon.py`."""
    unknown: float = Field(default=0.0, ge=0, lt=1)
    """How often a word that tells order is made strange, in half of the captions of pairs."""
    lexicon_lr: float = Field(default=3.0, ge=0)
    """Learning rate of the map from the encoder's words, relative to the others."""
    tokens_lr: float = Field(default=1.0, ge=0)
    """Learning rate of the tower's own embeddings, relative to the others."""
    roles: bool = False
    """Only vectors of parts in a sentence learn, and words that are never said get them; needs a
    lexicon to tell their parts. See `training/roles.py`."""
    blend: float = Field(default=0.0, ge=0, lt=1)
    """Share of the text side that single sounds are held to in the finished weights."""
    look_every: int = Field(default=0, ge=0)
    optimisation: Optimisation


class Recipe(_Strict):
    """A whole run: the text tower, the audio side, a stage that tunes them together, and one that
    teaches composition."""

    name: str
    seed: int = 0
    weights: Literal["float32", "float16"] = "float32"
    """How the finished model is stored; it is loaded and run in float32 either way."""
    text: TextRecipe = TextRecipe()
    audio: AudioRecipe = AudioRecipe()
    tune: TuneRecipe | None = None
    order: ComposeRecipe | None = None
    """A stage before composition that has plain pairs of one kind only, to begin with."""
    compose: ComposeRecipe | None = None
    wording: WordingRecipe | None = None
    """Many wordings, for the text side alone."""


def recipe_names() -> tuple[str, ...]:
    """Recipes that come with the package."""
    folder = resources.files("residual_audio.training") / "recipes"
    return tuple(sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".toml")))


def load_recipe(source: str | Path, settings: Sequence[str] = ()) -> Recipe:
    """A recipe by name or file, with `section.key=value` settings laid over it."""
    path = Path(source).expanduser()
    if str(source) in recipe_names():
        folder = resources.files("residual_audio.training") / "recipes"
        values = tomllib.loads((folder / f"{source}.toml").read_text(encoding="utf-8"))
    elif path.is_file():
        values = _read(path)
    else:
        raise InputError(
            f"no recipe '{source}': give a .toml or .json file, "
            f"or one of: {', '.join(recipe_names())}"
        )
    for setting in settings:
        _lay_over(values, setting)
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"recipe '{source}', {where}: {first['msg']}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        values = parse_json(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"recipe '{path}' is not readable: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"recipe '{path}' holds no settings")
    return values


def _lay_over(values: dict[str, object], setting: str) -> None:
    name, found, text = setting.partition("=")
    if not found:
        raise InputError(f"setting '{setting}': write it as section.key=value")
    try:
        value = parse_json(text)
    except ValueError:
        value = text
    *sections, key = name.strip().split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"setting '{setting}': '{section}' is not a section")
        values = inner
    values[key] = value
