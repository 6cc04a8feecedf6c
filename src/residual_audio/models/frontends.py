"""The front-end a spec asks for."""

from __future__ import annotations

from typing import Any

from torch import nn

from residual_audio.audio.frontend import FrontEndSpec, LogMel


def build_front_end(spec: FrontEndSpec, filters: Any = None) -> nn.Module:
    """Waveforms [clip, sample] → the features an encoder takes; `filters` override the spec's."""
    if spec.fusion:
        from residual_audio.audio.fusion import FusionLogMel

        return FusionLogMel(spec, filters)
    return LogMel(spec, filters)
