"""Public releases by the names people use: which file of the Hub they mean, and its sha256 where a
source states it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from residual_audio.errors import ModelError
from residual_audio.models.hub import hub_reachable


@dataclass(frozen=True)
class Release:
    """A file of the Hub that a short name stands for."""

    family: str
    name: str
    repository: str
    file: str


_LAION = "lukewys/laion_clap"
_LAION_NAMES = (
    "630k-best",
    "630k-audioset-best",
    "630k-fusion-best",
    "630k-audioset-fusion-best",
    "music_audioset_epoch_15_esc_90.14",
    "music_speech_epoch_15_esc_89.25",
    "music_speech_audioset_epoch_15_esc_89.98",
)
RELEASES = (
    *(Release("laion", name, _LAION, f"{name}.pt") for name in _LAION_NAMES),
    Release("msclap", "2023", "microsoft/msclap", "CLAP_weights_2023.pth"),
)

SHA256 = {
    "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03": "tiny.en.pt",
    "65147644a518d12f04e32d6f3b26facc3f8dd46e5390956a9424a650c0ce22b9": "tiny.pt",
    "25a8566e1d0c1e2231d1c762132cd20e0f96a85d16145c3a00adf5d1ac670ead": "base.en.pt",
    "ed3a0b6b1c0edf879ad9b11b1af5a0e6ab5db9205f891f668f8b0e6c6326e34e": "base.pt",
    "f953ad0fd29cacd07d5a9eda5624af0f6bcf2258be67c92b79389873d91e0872": "small.en.pt",
    "9ecf779972d90ba49c06d968637d720dd632c55bbf19d441fb42bf17a411e794": "small.pt",
    "d7440d1dc186f76616474e0ff0b3b6b879abc9d1a4926b7adfa41db2d497ab4f": "medium.en.pt",
    "345ae4da62f9b3d59415adc60127b97c714f32e89e936602e85993674d08dcb1": "medium.pt",
    "e4b87e7e0bf463eb8e6956e646f1e277e901512310def2c24bf0e11bd3c28e9a": "large-v1.pt",
    "81f7c96c852ee8fc832187b0132e569d6c3065a3252ed18e56effd0b6a73e524": "large-v2.pt",
    "e5b1a55b89c1367dacf97e3e19bfd829a01529dbfdeefa8caeb59b3f1b81dadb": "large-v3.pt",
    "aff26ae408abcba5fbf8813c21e62b0941638c5f6eebfb145be0c9839262a19a": "large-v3-turbo.pt",
}
"""Of OpenAI's Whisper, as the addresses in its own package state them. No source that was found
states those of CLAP releases, so their files are compared with nothing."""


def named_file(family: str, ref: str) -> str:
    """The path of the file that `ref` names: itself, unless it is the name of a release.

    A release is looked for in the Hugging Face cache, then, when online, on the Hub.
    """
    if Path(ref).expanduser().exists():
        return ref
    known = {r.name: r for r in RELEASES if r.family == family}
    release = known.get(ref) or next((r for r in known.values() if r.file == ref), None)
    if release is None:
        _refuse_name(family, ref, list(known))
        return ref
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    why = "the Hub cannot be reached"
    for local_only in (True, False) if hub_reachable() else (True,):
        try:
            return hf_hub_download(  # nosec B615 # `models check` compares its sum
                release.repository, release.file, local_files_only=local_only
            )
        except (LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if isinstance(error, HfHubHTTPError) and status is not None:
                why = f"the Hub does not hand it out ({status})"
    raise ModelError(
        f"'{family}:{ref}' is the file {release.file} of {release.repository}; it is not in the "
        f"Hugging Face cache, and {why}. On a machine with network run "
        f"`hf download {release.repository} {release.file} --local-dir .`, copy the file here and "
        f"use {family}:{release.file}"
    )


def _refuse_name(family: str, ref: str, known: list[str]) -> None:
    """What has neither a folder before it nor the suffix of a file was meant as a release."""
    if "/" in ref or Path(ref).suffix in (".pt", ".pth", ".safetensors"):
        return
    if (family, ref) == ("msclap", "2022"):
        raise ModelError(
            "'msclap:2022' is Microsoft CLAP 2022: its audio encoder is a CNN (Cnn14) without "
            "attention heads, which this toolkit does not read. Use msclap:2023."
        )
    raise ModelError(
        f"'{family}:{ref}' is neither a file nor a release that is known by name: "
        f"{', '.join(known)}"
    )


def openai_file(ref: str) -> str:
    """Where OpenAI's own package puts the Whisper model of this name; else `ref` itself."""
    if f"{ref}.pt" not in SHA256.values() or Path(ref).expanduser().exists():
        return ref
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "whisper"
    path = cache / f"{ref}.pt"
    if path.is_file():
        return str(path)
    raise ModelError(
        f"'whisper:{ref}' is the file {ref}.pt of OpenAI, which is not in '{cache}': put it there, "
        f"give its path (whisper:{ref}.pt), or use the folder of transformers, "
        f"whisper:openai/whisper-{ref.removesuffix('-v1')}"
    )
