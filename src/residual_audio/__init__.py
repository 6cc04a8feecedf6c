"""ResiDual Audio: look inside CLAP audio encoders, reweight their heads, measure whether it helped."""

__version__ = "0.1.0"
