"""The front-end a spec asks for."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from residual_audio.audio.frontend import FrontEndSpec, LogMel, MelBank
from residual_audio.errors import ModelError


def refuse_unsaid(
    model: str, spec: FrontEndSpec, released: FrontEndSpec, layout: str, said: Collection[str] = ()
) -> None:
    """Refuse a layout that cannot say how this front-end differs from the released one.

    `said` are the settings that the layout writes down. The int16 round trip of the waveform is
    below what can be heard, and left out.
    """
    theirs = released.to_dict()
    different = [
        f"{name} {value} (there: {theirs[name]})"
        for name, value in spec.to_dict().items()
        if name not in said and name != "quantise" and value != theirs[name]
    ]
    if different:
        raise ModelError(
            f"'{model}' cannot be written as {layout}: that layout does not say how its front-end "
            f"differs, so it would load with another one. {', '.join(different)}. Use --to native."
        )


def build_front_end(spec: FrontEndSpec, filters: MelBank | None = None) -> nn.Module:
    """Waveforms [clip, sample] → the features an encoder takes; `filters` override the spec's."""
    if spec.codec is not None:
        from residual_audio.models.codec import CodecFrames

        return CodecFrames(spec)
    if spec.fusion:
        from residual_audio.audio.fusion_mel import FusionLogMel

        return FusionLogMel(spec, filters)
    return LogMel(spec, filters)
