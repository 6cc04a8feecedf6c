"""What a class is called in a sentence: natural phrases where the label alone reads badly."""

from __future__ import annotations

from functools import lru_cache

# of ESC-50: the first is the plainest and takes an adjective
ESC50: dict[str, tuple[str, ...]] = {
    "dog": ("a dog", "a dog barking", "dog barks"),
    "rooster": ("a rooster", "a rooster crowing"),
    "pig": ("a pig", "a pig grunting"),
    "cow": ("a cow", "a cow mooing"),
    "frog": ("a frog", "a frog croaking"),
    "cat": ("a cat", "a cat meowing"),
    "hen": ("a hen", "a hen clucking"),
    "insects": ("insects", "insects buzzing", "flying insects"),
    "sheep": ("a sheep", "a sheep bleating"),
    "crow": ("a crow", "a crow cawing"),
    "rain": ("rain", "rain falling"),
    "sea waves": ("sea waves", "waves breaking on the shore"),
    "crackling fire": ("a crackling fire", "fire crackling"),
    "crickets": ("crickets", "crickets chirping"),
    "chirping birds": ("chirping birds", "birds chirping", "birdsong"),
    "water drops": ("water drops", "water dripping"),
    "wind": ("wind", "wind blowing"),
    "pouring water": ("pouring water", "water being poured"),
    "toilet flush": ("a toilet flush", "a toilet flushing"),
    "thunderstorm": ("a thunderstorm", "thunder"),
    "crying baby": ("a crying baby", "a baby crying"),
    "sneezing": ("sneezing", "someone sneezing", "a sneeze"),
    "clapping": ("clapping", "people clapping", "applause"),
    "breathing": ("breathing", "someone breathing"),
    "coughing": ("coughing", "someone coughing", "a cough"),
    "footsteps": ("footsteps", "someone walking"),
    "laughing": ("laughing", "someone laughing", "laughter"),
    "brushing teeth": ("brushing teeth", "someone brushing their teeth"),
    "snoring": ("snoring", "someone snoring"),
    "drinking sipping": ("drinking", "someone sipping a drink"),
    "door wood knock": ("a knock on a wooden door", "knocking on a door"),
    "mouse click": ("a mouse click", "clicking a computer mouse"),
    "keyboard typing": ("keyboard typing", "typing on a keyboard"),
    "door wood creaks": ("a creaking wooden door", "a door creaking"),
    "can opening": ("a can opening", "opening a can"),
    "washing machine": ("a washing machine", "a washing machine running"),
    "vacuum cleaner": ("a vacuum cleaner", "a vacuum cleaner running"),
    "clock alarm": ("an alarm clock", "an alarm clock ringing"),
    "clock tick": ("a ticking clock", "a clock ticking"),
    "glass breaking": ("breaking glass", "glass breaking", "glass shattering"),
    "helicopter": ("a helicopter", "a helicopter flying"),
    "chainsaw": ("a chainsaw", "a chainsaw running"),
    "siren": ("a siren", "a siren wailing"),
    "car horn": ("a car horn", "a car honking"),
    "engine": ("an engine", "an engine running"),
    "train": ("a train", "a train passing"),
    "church bells": ("church bells", "church bells ringing"),
    "airplane": ("an airplane", "an airplane flying by"),
    "fireworks": ("fireworks", "fireworks exploding"),
    "hand saw": ("a hand saw", "sawing by hand"),
}


@lru_cache(maxsize=1)
def _nouns() -> dict[str, str]:
    from residual_audio.data.sounds import ALL

    return {sound.label: sound.noun for sound in ALL}


def phrases_of(label: str) -> tuple[str, ...]:
    """Names of a class, the plainest first: natural phrases where they are known, and its label."""
    natural = ESC50.get(label, ())
    noun = _nouns().get(label)
    names = (*natural, *((noun,) if noun else ()), label, f"the sound of {label}")
    return tuple(dict.fromkeys(names))
