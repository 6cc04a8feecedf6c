"""`python -m residual_audio` is `residual-audio`."""

from residual_audio.cli import main

main()
