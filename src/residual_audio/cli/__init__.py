"""The command line: one file a command, one line each in `COMMANDS`."""

from residual_audio.cli.app import main

__all__ = ["main"]
