"""What a run of an encoder reports: heads, blocks, stages, direct path, moments, tokens."""

from residual_audio.capture.capture_settings import KINDS, CaptureSettings

__all__ = ["KINDS", "CaptureSettings"]
