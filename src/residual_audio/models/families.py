"""The kinds of checkpoint by name; nothing here loads one, so that listing them is quick."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Family:
    """A kind of checkpoint that can be loaded."""

    prefix: str
    title: str
    reference: str
    module: str
    needs_reference: bool = True


FAMILIES = {
    family.prefix: family
    for family in (
        Family("hf", "Hugging Face ClapModel", "repository id or folder", "hf"),
        Family("laion", "LAION-CLAP", "file.pt, or a release: 630k-audioset-best", "laion"),
        Family("afclap", "AF-CLAP (NVIDIA)", "file.pt", "afclap"),
        Family("openclip", "open_clip CLAP", "folder, id or file[?config=file.json]", "openclip"),
        Family("msclap", "Microsoft CLAP 2023", "file.pth or 2023", "msclap"),
        Family("mga", "MGA-CLAP", "file.pt", "mga"),
        Family("m2d", "M2D-CLAP (ViT)", "folder or file.pth[?features=stacked]", "m2d"),
        Family("pe-audio", "PE-Audio and PE-AV's audio side", "folder or id", "pe_audio"),
        Family("ast", "Audio Spectrogram Transformer, audio only", "folder or id", "ast"),
        Family("whisper", "Whisper encoder, audio only", "folder, id or file.pt", "whisper"),
        Family("htsat-tiny-random", "HTS-AT tiny, random weights", "seed", "random_htsat", False),
        Family(
            "whisper-tiny-random", "Whisper tiny, random weights", "seed", "random_whisper", False
        ),
    )
}
NANO = Path(__file__).parent / "nano"
"""The bundled model."""
