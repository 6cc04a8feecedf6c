"""One error family. A message quotes the input, says what was wrong with it and what to do."""

from __future__ import annotations


class ResidualAudioError(Exception):
    """Base of every error raised on purpose; the command line prints it and exits with 1."""


class AudioError(ResidualAudioError):
    """A file that cannot be decoded, or decodes to something that is not usable sound."""


class UnreachableError(AudioError):
    """A sound file that could not be opened or read just now; it is tried again another time."""


class DatasetError(ResidualAudioError):
    """A data set that is not where it was said to be, or not in its official layout."""


class ModelError(ResidualAudioError):
    """A model that cannot be found, loaded or proved: wrong family, missing keys, wrong shapes."""


class StoreError(ResidualAudioError):
    """A store that is damaged, in use, or does not match what it is asked to continue."""


class EngineError(ResidualAudioError):
    """Processes or a cluster that work was given to cannot be reached, or were lost for good."""


class InputError(ResidualAudioError):
    """A value given by the caller that makes no sense here (shape, range, unknown name)."""


class MissingExtraError(ResidualAudioError):
    """An optional dependency is needed; the message names the extra that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}'. "
            f"Install it with: pip install 'residual-audio[{extra}]'"
        )


class Remark(UserWarning):
    """What a reader should know about a result that is there all the same."""
