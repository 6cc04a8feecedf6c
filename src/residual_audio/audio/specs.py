"""The front-end of each model family, as its release defines it."""

from __future__ import annotations

from dataclasses import replace

from residual_audio.audio.frontend import FrontEndSpec

HF = FrontEndSpec(
    sample_rate_hz=48_000,
    n_samples=480_000,
    n_fft=1024,
    hop_length=480,
    n_mels=64,
    f_min_hz=50.0,
    f_max_hz=14_000.0,
    short="repeat-pad",
)
"""transformers `ClapModel`, unfused."""

LAION = replace(HF, quantise=True)
"""LAION-CLAP, unfused: its default path rounds the waveform to int16."""

HF_FUSION = replace(HF, mel_scale="htk", mel_norm=None, fusion=True)
"""transformers `ClapModel` with feature fusion."""

LAION_FUSION = replace(HF_FUSION, quantise=True)
"""LAION-CLAP with feature fusion."""

AFCLAP = replace(
    LAION_FUSION, sample_rate_hz=16_000, n_samples=160_000, hop_length=160, f_max_hz=8_000.0
)
"""AF-CLAP: LAION's with feature fusion, at 16 kHz."""

MSCLAP = FrontEndSpec(
    sample_rate_hz=44_100,
    n_samples=308_700,
    n_fft=1024,
    hop_length=320,
    n_mels=64,
    f_min_hz=50.0,
    f_max_hz=14_000.0,
    filter_rate_hz=32_000,
    short="repeat-cut",
)
"""Microsoft CLAP 2023: filters made for 32 kHz see audio at 44.1 kHz; `melW` in the file wins."""

MGA = FrontEndSpec(
    sample_rate_hz=32_000,
    n_samples=320_000,
    n_fft=1024,
    hop_length=320,
    n_mels=64,
    f_min_hz=50.0,
    f_max_hz=14_000.0,
    short="zero-pad",
)
"""MGA-CLAP."""

M2D = FrontEndSpec(
    sample_rate_hz=16_000,
    n_samples=160_000,
    n_fft=400,
    hop_length=160,
    n_mels=80,
    f_min_hz=50.0,
    f_max_hz=8_000.0,
    log="ln-add",
    log_eps=1.1920929e-07,
    short="keep",
)
"""M2D-CLAP 2025 (10 s); the converter adds the checkpoint's `norm_stats` as mean and std."""

M2D_2024 = replace(M2D, n_samples=97_120)
"""M2D-CLAP 2024 (608 frames)."""

AST = FrontEndSpec(
    sample_rate_hz=16_000,
    n_samples=164_080,
    n_fft=512,
    win_length=400,
    hop_length=160,
    n_mels=128,
    f_min_hz=20.0,
    f_max_hz=8_000.0,
    mel_scale="kaldi",
    mel_norm=None,
    log="ln",
    log_eps=1.192092955078125e-07,
    center=False,
    window="hanning",
    preemphasis=0.97,
    remove_dc=True,
    short="keep",
    n_frames=1024,
    mean=-4.2677393,
    std=4.5689974 * 2,
)
"""Audio Spectrogram Transformer: kaldi filter bank; missing frames are 0 before normalisation."""

WHISPER = FrontEndSpec(
    sample_rate_hz=16_000,
    n_samples=480_000,
    n_fft=400,
    hop_length=160,
    n_mels=80,
    f_min_hz=0.0,
    f_max_hz=8_000.0,
    log="log10-whisper",
    short="zero-pad",
    drop_last_frame=True,
)
"""Whisper encoders; large-v3 has 128 mels: `replace(WHISPER, n_mels=128)`."""

NANO = FrontEndSpec(
    sample_rate_hz=32_000,
    n_samples=160_000,
    n_fft=1024,
    hop_length=640,
    n_mels=64,
    f_min_hz=50.0,
    f_max_hz=14_000.0,
    short="repeat-pad",
)
"""The bundled model."""
